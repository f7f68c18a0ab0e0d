"""What a surface is: a function that takes bytes, and what it promises about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
MIB = 1 << 20


@dataclass(frozen=True)
class Surface:
    """`feed` raises nothing but `promised`, whatever it is given, within the bounds.

    `begin` makes `feed`, in the process that runs the campaign. `seeds` are inputs that are right; those of
    `corpus/` come with them. `prefix`: so many bytes at the front choose the reader. `cpu_seconds`, `peak_bytes`:
    of one input; `growth_bytes`: of the process, over a campaign.
    """

    name: str
    begin: Callable[[], Callable[[bytes], object]]
    seeds: Callable[[], Sequence[bytes]]
    promised: tuple[type[BaseException], ...]
    tokens: tuple[bytes, ...] = ()
    prefix: int = 0
    cpu_seconds: float = 1.0
    peak_bytes: int = 32 * MIB
    growth_bytes: int = 48 * MIB
    smoke_inputs: int = 600

    def corpus(self) -> list[bytes]:
        """The inputs that a campaign begins with: what was found before, by name, then the seeds."""
        return [path.read_bytes() for path in self.kept()] + list(self.seeds())

    def kept(self) -> list[Path]:
        """The files that were found to break it once."""
        return sorted((CORPUS / self.name).glob("*"))
