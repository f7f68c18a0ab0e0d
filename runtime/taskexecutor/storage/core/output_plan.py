"""The plan of one commit for one base, decided once and then only carried out (R28). Pure.

Invariants: a plan names every file that becomes visible and every file that goes; it never changes once it is stored,
so that a later mover, which sees old and new files side by side, can tell them apart.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from runtime.common.errors import InvalidInputError
from runtime.common.json_text import parse_json
from runtime.gateways.task import APPEND, ERROR, OUTPUT_MODES, OVERWRITE, OVERWRITE_PARTITIONS

PLAN_VERSION = 3
"""Written only where an earlier release could not do all of it."""


Identity = tuple[int, int]
"""Inode and time of the last change, in nanoseconds: a rename keeps both."""


class Written(NamedTuple):
    """A file in the directory of an attempt. `identity`: None where the storage keeps none, or moves nothing."""

    size: int
    identity: Identity | None = None


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One file that becomes visible as `name`: it lies in the attempt's `directory`.

    `identity` tells the file, when it has been moved, from another file of its name and size; None also where an
    earlier release has planned.
    """

    directory: str
    name: str
    size: int
    identity: Identity | None = None


@dataclass(frozen=True, slots=True)
class Present:
    """The content of a base before a commit. `files`: sizes by name. `aliases`: links that are not followed, because
    their files have another name in the base, or none; targets by name. `markers`: files that say of directories within
    the base that they are whole.
    """

    files: Mapping[str, int]
    directories: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)
    markers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """`replaced`: files that were there before, under names that no new file has. `overwritten`: the others.

    `asides`: old files whose names new directories need, and directories whose names new files need; all below goes
    with them. `markers`: those of directories within the base whose files are replaced; they go first.
    """

    mode: str
    files: tuple[PlannedFile, ...]
    replaced: tuple[str, ...] = ()
    overwritten: frozenset[str] = frozenset()
    asides: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()

    @property
    def may_replace(self) -> bool:
        """True when a new file takes the place of an old one of its name."""
        return self.mode not in {APPEND, ERROR}

    def encode(self) -> bytes:
        """The stored form: its digest, then JSON. A form that was written in part is not taken for a plan."""
        by_directory: dict[str, list[tuple[str, int]]] = {}
        identities: dict[str, list[Identity]] = {}
        for file in self.files:
            by_directory.setdefault(file.directory, []).append((file.name, file.size))
            if file.identity is not None:
                identities.setdefault(file.directory, []).append(file.identity)
        fields: dict[str, object] = {
            "version": PLAN_VERSION if self.markers else 2 if self.asides else 1,
            "mode": self.mode,
            "files": by_directory,
            "replaced": self.replaced,
            "overwritten": sorted(self.overwritten),
        }
        if self.asides:
            fields["asides"] = self.asides
        if self.markers:
            fields["markers"] = self.markers
        if identities:  # an earlier release carries the plan out without them
            fields["identities"] = identities
        body = json.dumps(fields, separators=(",", ":")).encode()
        return hashlib.sha256(body).hexdigest().encode() + b"\n" + body

    @classmethod
    def decode(cls, data: bytes) -> OutputPlan | None:
        """A plan from `encode`; None for data that is no whole plan. Raises InvalidInputError for a plan of a later
        version, and for a plan that no mover has written: any writer to the base can leave one there (R52).
        """
        fields = _fields(data)
        if fields is None:
            return None
        try:
            return cls._of(fields)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            message = f"a commit's plan is damaged: {type(error).__name__}: {str(error)[:200]}"
            raise InvalidInputError(message) from error

    @classmethod
    def _of(cls, fields: Mapping[str, Any]) -> OutputPlan:
        if fields["version"] > PLAN_VERSION:
            message = f"a commit's plan of version {str(fields['version'])[:80]}, this release reads {PLAN_VERSION}"
            raise InvalidInputError(message)
        identities = fields.get("identities", {})
        files = tuple(
            PlannedFile(
                _name(directory), _name(name), int(size), None if identity is None else (identity[0], identity[1])
            )
            for directory, members in fields["files"].items()
            for (name, size), identity in zip(members, identities.get(directory, [None] * len(members)), strict=True)
        )
        return cls(
            _mode(fields["mode"]),
            files,
            tuple(map(_name, fields["replaced"])),
            frozenset(map(_name, fields["overwritten"])),
            asides=tuple(map(_name, fields.get("asides", ()))),
            markers=tuple(map(_name, fields.get("markers", ()))),
        )

    def may_have_begun(self, present: Present) -> bool:
        """False when the base, which no other job has changed since, shows that nothing of the plan was carried out."""
        if self.asides or self.overwritten:
            return True
        is_shown = any(file.name in present.files for file in self.files)
        return is_shown or any(name not in present.files for name in self.replaced)

    def replaces_all_of(self, other: OutputPlan) -> bool:
        """True when this plan, once carried out, leaves nothing of the other one, however far that was carried out."""
        if self.mode == OVERWRITE:
            return True
        changed = {_parent(name) for name in (*(file.name for file in other.files), *other.replaced)}
        partitions = {_parent(file.name) for file in self.files}
        return self.mode == OVERWRITE_PARTITIONS and not other.asides and changed <= partitions


def planned_mode(data: bytes) -> str | None:
    """The mode of a stored plan of any version; None for data that is no whole plan."""
    fields = _fields(data)
    return str(fields.get("mode", "")) if fields is not None else None


def _fields(data: bytes) -> dict[str, Any] | None:
    digest, _, body = data.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        return None
    try:
        fields = parse_json(body)
    except ValueError as error:
        message = "a commit's plan holds no JSON"
        raise InvalidInputError(message) from error
    if not isinstance(fields, dict):
        message = f"a commit's plan holds a {type(fields).__name__}, expected an object"
        raise InvalidInputError(message)
    return fields


def _mode(mode: object) -> str:
    if mode not in OUTPUT_MODES:
        message = f"no such output mode: {str(mode)[:80]!r}"
        raise ValueError(message)
    return str(mode)


def _name(name: object) -> str:
    """The name, if it stays in the base. Raises ValueError."""
    if not isinstance(name, str) or name.startswith("/") or ".." in name.split("/") or name in {"", "."}:
        message = f"{str(name)[:200]!r} is no name of a file in the base"
        raise ValueError(message)
    return name


def make_plan(base: str, mode: str, written: Mapping[str, Mapping[str, Written]], present: Present) -> OutputPlan:
    """`written`: what each accepted attempt's directory holds, by name.

    Raises InvalidInputError when it cannot be carried out: nothing has become visible then.
    """
    if mode not in OUTPUT_MODES:
        message = f"{base}: no such output mode: {mode!r}"
        raise InvalidInputError(message)
    visible = [name for name in present.files if is_visible(name)]
    if mode == ERROR and visible:
        message = f"{base} exists already, it holds {min(visible)}, and mode='error' refuses to add to it"
        raise InvalidInputError(message)
    files: dict[str, PlannedFile] = {}
    for directory, members in written.items():
        for name, file in members.items():
            if name in files:
                raise _taken(f"{base}/{name}", "another subtask wrote a file of that name")
            if mode == APPEND and name in present.files:
                raise _taken(f"{base}/{name}", "an earlier job wrote a file of that name")
            files[name] = PlannedFile(directory, name, file.size, file.identity)
    asides = _in_the_way(base, mode, files, present)
    going = [name for name in _replaced(mode, files, present.files) if name not in files]
    replaced = [name for name in going if asides.isdisjoint((name, *_ancestors(name)))] if asides else going
    overwritten = frozenset(files.keys() & present.files.keys())
    return OutputPlan(
        mode,
        tuple(files.values()),
        tuple(sorted(replaced)),
        overwritten,
        asides=tuple(sorted(asides)),
        markers=tuple(sorted(_void_markers(mode, files, present, asides))),
    )


def _void_markers(mode: str, files: Mapping[str, PlannedFile], present: Present, asides: set[str]) -> Iterator[str]:
    """Markers of directories whose files are replaced; a directory that is set aside takes its markers along."""
    partitions = {_parent(name) for name in files}
    for name in present.markers:
        is_replaced = mode == OVERWRITE or (mode == OVERWRITE_PARTITIONS and _parent(name) in partitions)
        if is_replaced and asides.isdisjoint(_ancestors(name)):
            yield name


def _in_the_way(base: str, mode: str, files: Mapping[str, PlannedFile], present: Present) -> set[str]:
    """Names under which a file lies where a directory has to be, or the reverse. Raises InvalidInputError unless the
    mode replaces everything.
    """
    rooms = {room for parent in set(map(_parent, files)) for room in (parent, *_ancestors(parent)) if room}
    if both := rooms & files.keys():
        raise _taken(f"{base}/{min(both)}", "another subtask wrote a file of that name, and this one a directory")
    if links := (rooms | files.keys()) & present.aliases.keys():
        name = min(links)
        message = (
            f"{base}/{name} is a link to {present.aliases[name]}, which is outside of what can be followed here or has"
            " another name in the base: write under that name, or delete the link"
        )
        raise InvalidInputError(message)
    parents = set(map(_parent, present.files))
    inhabited = {*present.directories, *parents, *(room for parent in parents for room in _ancestors(parent))}
    in_files, in_directories = rooms & present.files.keys(), files.keys() & inhabited
    if mode != OVERWRITE and (in_files or in_directories):
        name = min(in_files or in_directories)
        is_there, is_new = ("file", "directory") if in_files else ("directory", "file")
        message = (
            f"{base}/{name} is a {is_there}, and the job wrote a {is_new} of that name: only mode='overwrite' replaces"
            f" one by the other, and this is mode={mode!r}"
        )
        raise InvalidInputError(message)
    return {*in_files, *in_directories}


def _ancestors(name: str) -> Iterator[str]:
    while name := _parent(name):
        yield name


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
