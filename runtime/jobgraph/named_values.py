"""Values that a task is given by name, and that nothing prints."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping


class NamedValues(Mapping[str, str]):
    """Subclasses word the error for a missing name, and `repr`: both show names only."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    @abstractmethod
    def _missing(self, name: str) -> str:
        """The sentence of the KeyError for a name that is not there."""

    def __getitem__(self, name: str) -> str:
        try:
            return self._values[name]
        except KeyError:
            raise KeyError(self._missing(name)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
