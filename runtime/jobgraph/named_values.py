"""Named values of a task, such as secrets, whose repr shows only the names."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping


class NamedValues(Mapping[str, str]):
    """A mapping from names to values. Subclasses implement the repr and the message for a missing name."""

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
