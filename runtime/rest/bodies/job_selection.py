"""Which jobs a list shows: by state, text, label and time, in an order, in pages. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.gateways.dispatcher import JobSummary

UNFINISHED = "unfinished"
LIMIT_MAX = 10_000
TEXT_LENGTH_MAX = 200
_ENDED = tuple(one for one in JobStatus if one.is_globally_terminal)
_ORDERS = ("newest", "oldest", "longest", "name")


@dataclass(frozen=True, slots=True)
class JobSelection:
    """What is asked for; the defaults are all jobs, newest first.

    `state`: a JobStatus or UNFINISHED. `name`: a part of the name in any case, or the beginning of the id. `after`: the
    id of the last job of the page before. `limit` 0: no pages. `since`, `until`: the jobs that were submitted from then
    on, and before then, in milliseconds since 1970; 0: at any time. `label`: the FAILED jobs whose root cause has that
    label, `key=value`, or one of that value.
    """

    state: str = ""
    name: str = ""
    sort: str = ""
    after: str = ""
    limit: int = 0
    since: int = 0
    until: int = 0
    label: str = ""

    def __post_init__(self) -> None:
        states = [UNFINISHED, *(one.value for one in JobStatus)]
        if self.state and self.state not in states:
            message = f"state={self.state[:40]}: one of {', '.join(states)}"
            raise InvalidInputError(message)
        if self.sort and self.sort not in _ORDERS:
            message = f"sort={self.sort[:40]}: one of {', '.join(_ORDERS)}"
            raise InvalidInputError(message)
        if self.after and not self.limit:
            message = "after= is the place of a page: give limit= too"
            raise InvalidInputError(message)

    @property
    def is_everything(self) -> bool:
        """True for all jobs as they stand."""
        is_any_time = not (self.since or self.until)
        return is_any_time and not (self.state or self.name or self.sort or self.limit or self.label)


@dataclass(frozen=True, slots=True)
class JobPage:
    """The jobs of one page. `total`: of all pages; `next`: the `after` of the next page, "" at the end."""

    jobs: Sequence[JobSummary]
    total: int
    next: JobId | str


def select(newest_first: Sequence[JobSummary], wanted: JobSelection, now_millis: int) -> JobPage:
    """The page of `wanted`. Its beginning stays where it is while jobs come and go before it.

    When the job `after` has left the list, the page is the first one.
    """
    named, is_one_of_them = _states(wanted.state)
    found = [one for one in newest_first if (one.status in named) is is_one_of_them]  # ten thousand, for each open page
    if wanted.since or wanted.until or wanted.name or wanted.label:
        found = [one for one in found if _is_wanted(one, wanted)]
    found = _ordered(found, wanted.sort, now_millis)
    if not wanted.limit:
        return JobPage(found, len(found), "")
    start = next((at for at, one in enumerate(found, 1) if one.job_id == wanted.after), 0) if wanted.after else 0
    page = found[start : start + wanted.limit]
    is_last = start + len(page) >= len(found)
    return JobPage(page, len(found), "" if is_last else page[-1].job_id)


def _states(state: str) -> tuple[tuple[JobStatus, ...], bool]:
    """A few states, and whether the wanted ones are these or all others."""
    if not state:
        return (), False
    if state == UNFINISHED:
        return _ENDED, False
    return (JobStatus(state),), True


def _is_wanted(one: JobSummary, wanted: JobSelection) -> bool:
    if (wanted.since and one.start_millis < wanted.since) or (wanted.until and one.start_millis >= wanted.until):
        return False
    if wanted.label and not _has_label(one, wanted.label):
        return False
    text = wanted.name.lower()
    return not text or text in one.name.lower() or one.job_id.startswith(text)


def _has_label(one: JobSummary, label: str) -> bool:
    return any(label in {found, found.partition("=")[2]} for found in one.failure_labels)


def _ordered(jobs: list[JobSummary], sort: str, now_millis: int) -> list[JobSummary]:
    match sort:
        case "oldest":
            return jobs[::-1]
        case "longest":
            return sorted(jobs, key=lambda one: _spent(one, now_millis), reverse=True)
        case "name":
            return sorted(jobs, key=lambda one: (one.name.lower(), one.job_id))
        case _:
            return jobs


def _spent(one: JobSummary, now_millis: int) -> int:
    if one.start_millis < 0:
        return -1
    return (one.end_millis if one.end_millis >= 0 else now_millis) - one.start_millis
