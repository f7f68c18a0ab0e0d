"""Which files of a query's directory belong to the prefix up to one committed batch (R60). Decides on names alone.

Spark's logs are numbered by batch (`offsets`, `commits`, the log of a file sink) or by the source itself (`sources`),
and may have a compact file in the place of all before it. State has versions: the version of batch n is n + 1.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

KEPT_BATCHES = 10
"""Offsets and commits that a copy holds: Spark reads the last two, and people like to see where it came from."""
_LOG = re.compile(r"(\d{1,18})(\.compact)?\Z")
_STATE = re.compile(r"(\d{1,18})(_[0-9A-Za-z-]+)?\.(snapshot|zip|delta|changelog)\Z")
_LEADING = re.compile(r"(\d{1,18})(?:_.*)?\Z")
_FULL = frozenset({"snapshot", "zip"})


class MissingFilesError(Exception):
    """Files that the prefix needs are not in a listing: deleted meanwhile, or not yet seen by it."""


@dataclass(frozen=True, slots=True)
class _Numbered:
    name: str
    number: int
    is_full: bool
    """Nothing before it is needed."""


def batch_files(names: Iterable[str], batch_id: int) -> list[str]:
    """Of `offsets` or `commits`: the last ones up to a batch. Raises MissingFilesError if that batch has none."""
    numbers = sorted(int(name) for name in names if name.isascii() and name.isdigit() and int(name) <= batch_id)
    if not numbers or numbers[-1] != batch_id:
        message = f"there is no entry of batch {batch_id}"
        raise MissingFilesError(message)
    return [str(number) for number in numbers[-KEPT_BATCHES:]]


def log_files(names: Iterable[str], last: int, *, must_reach: bool) -> list[str]:
    """Of a log that may be compacted: what is needed for all entries up to `last`.

    `must_reach`: raises MissingFilesError when there is no entry of `last`. Raises it also for a gap behind a compact
    file.
    """
    entries = [
        _Numbered(name, int(found[1]), found[2] is not None)
        for name in names
        if (found := _LOG.match(name)) is not None and int(found[1]) <= last
    ]
    chosen = _from_full(entries)
    numbers = {one.number for one in chosen}
    if must_reach and last not in numbers:
        message = f"there is no entry {last}"
        raise MissingFilesError(message)
    if any(one.is_full for one in chosen):
        _check_unbroken(numbers, max(numbers))
    return [one.name for one in chosen]


def source_files(names: Collection[str], last: int, offset: int | None) -> list[str]:
    """Of a source's log: what is needed for all entries up to `offset`, the one that the batch has read up to.

    Up to `last` where the log cannot end at `offset`, because it is not known or lies before a compact entry: Spark
    reads the entries behind it once more, as it does when it failed before it wrote the offset.
    """
    if offset is not None:
        try:
            chosen = log_files(names, offset, must_reach=True)
            whole = [name for name in chosen if name.endswith(".compact")]
            if not whole:
                _check_unbroken({*map(int, chosen), -1}, offset)
        except MissingFilesError:
            pass  # it is older than the log
        else:
            return chosen
    return log_files(names, last, must_reach=False)


def last_entry(names: Iterable[str]) -> int:
    """The number of the newest entry of a log, -1 for an empty one."""
    return max((int(found[1]) for name in names if (found := _LOG.match(name)) is not None), default=-1)


def is_log(names: Collection[str]) -> bool:
    """True if all these names are entries of a log."""
    return bool(names) and all(_LOG.match(name) for name in names)


def state_files(names: Iterable[str], version: int) -> list[str]:
    """Of one state store: the newest whole version up to `version`, and all changes behind it.

    Stores whose files have ids (Spark's second format of state) have several files for a version, of which Spark
    chooses: all up to `version` are taken. Raises MissingFilesError when the changes do not lead to `version`, and
    ValueError for files of a kind that is not known.
    """
    entries, has_ids = [], False
    for name in names:
        found = _STATE.match(name)
        if found is None:
            raise ValueError(name)
        has_ids = has_ids or found[2] is not None
        if int(found[1]) <= version:
            entries.append(_Numbered(name, int(found[1]), found[3] in _FULL))
    chosen = sorted(entries, key=lambda one: one.name) if has_ids else _from_full(entries)
    numbers = {one.number for one in chosen}
    whole = [one.number for one in chosen if one.is_full]
    _check_unbroken(numbers if has_ids or whole else numbers | {0}, version)
    return [one.name for one in chosen]


def is_up_to(name: str, batch_id: int) -> bool:
    """True for a name without a batch, and for one that begins with a batch up to this one (schemas, metadata)."""
    found = _LEADING.match(name)
    return found is None or int(found[1]) <= batch_id


def _from_full(entries: Iterable[_Numbered]) -> list[_Numbered]:
    """The newest full entry and all behind it; everything if none is full."""
    ordered = sorted(entries, key=lambda one: (one.number, one.is_full))
    base = max((one.number for one in ordered if one.is_full), default=None)
    if base is None:
        return ordered
    return [one for one in ordered if one.number > base or (one.number == base and one.is_full)]


def _check_unbroken(numbers: Collection[int], last: int) -> None:
    missing = sorted(set(range(min(numbers, default=last), last + 1)) - set(numbers))
    if missing:
        message = f"entries {missing[:5]} are missing"
        raise MissingFilesError(message)
