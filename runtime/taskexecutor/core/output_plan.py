"""What one commit does to one base, decided once and then only carried out (R28). Pure.

Invariants: a plan names every file that becomes visible and every one that goes; it never changes once it is stored, so
that a mover that comes later, and sees old files and new ones side by side, knows which are which.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runtime.common.errors import InvalidInputError
from runtime.gateways.task import APPEND, ERROR, OUTPUT_MODES, OVERWRITE

PLAN_VERSION = 1


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One file that becomes visible as `name`: it lies in the attempt's `directory`."""

    directory: str
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """`replaced`: files that were there before, under names that no new file has. `overwritten`: the others."""

    mode: str
    files: tuple[PlannedFile, ...]
    replaced: tuple[str, ...] = ()
    overwritten: frozenset[str] = frozenset()

    @property
    def may_replace(self) -> bool:
        """True when a new file takes the place of an old one of its name."""
        return self.mode not in {APPEND, ERROR}

    def encode(self) -> bytes:
        """The stored form: its digest, then JSON. What was written in part is not taken for a plan."""
        by_directory: dict[str, list[tuple[str, int]]] = {}
        for file in self.files:
            by_directory.setdefault(file.directory, []).append((file.name, file.size))
        fields = {
            "version": PLAN_VERSION,
            "mode": self.mode,
            "files": by_directory,
            "replaced": self.replaced,
            "overwritten": sorted(self.overwritten),
        }
        body = json.dumps(fields, separators=(",", ":")).encode()
        return hashlib.sha256(body).hexdigest().encode() + b"\n" + body

    @classmethod
    def decode(cls, data: bytes) -> OutputPlan | None:
        """The inverse; None for what is no whole plan. Raises InvalidInputError for one of a later version."""
        digest, _, body = data.partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            return None
        fields = json.loads(body)
        if fields["version"] > PLAN_VERSION:
            message = f"a commit's plan of version {fields['version']}, this release reads {PLAN_VERSION}"
            raise InvalidInputError(message)
        files = tuple(
            PlannedFile(directory, name, size)
            for directory, members in fields["files"].items()
            for name, size in members
        )
        return cls(fields["mode"], files, tuple(fields["replaced"]), frozenset(fields["overwritten"]))


def make_plan(base: str, mode: str, written: Mapping[str, Mapping[str, int]], present: Mapping[str, int]) -> OutputPlan:
    """`written`: what each accepted attempt's directory holds; `present`: what the base shows, by name with sizes.

    Raises InvalidInputError when it cannot be carried out: nothing has become visible then.
    """
    if mode not in OUTPUT_MODES:
        message = f"{base}: no such output mode: {mode!r}"
        raise InvalidInputError(message)
    visible = [name for name in present if is_visible(name)]
    if mode == ERROR and visible:
        message = f"{base} exists already, it holds {min(visible)}, and mode='error' refuses to add to it"
        raise InvalidInputError(message)
    files: dict[str, PlannedFile] = {}
    for directory, members in written.items():
        for name, size in members.items():
            if name in files:
                raise _taken(f"{base}/{name}", "another subtask wrote a file of that name")
            if mode == APPEND and name in present:
                raise _taken(f"{base}/{name}", "an earlier job wrote a file of that name")
            files[name] = PlannedFile(directory, name, size)
    replaced = tuple(sorted(name for name in _replaced(mode, files, present) if name not in files))
    return OutputPlan(mode, tuple(files.values()), replaced, frozenset(files.keys() & present.keys()))


def _replaced(mode: str, files: Mapping[str, PlannedFile], present: Mapping[str, int]) -> Sequence[str]:
    if mode in {APPEND, ERROR}:
        return ()
    if mode == OVERWRITE:
        return list(present)
    partitions = {_parent(name) for name in files}
    return [name for name in present if _parent(name) in partitions]


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def is_visible(name: str) -> bool:
    """False for what Spark's readers leave out: names that begin with . or _"""
    return not any(part.startswith((".", "_")) and "=" not in part for part in name.split("/"))


def _taken(target: str, why: str) -> InvalidInputError:
    return InvalidInputError(f"{target} exists already: {why}")
