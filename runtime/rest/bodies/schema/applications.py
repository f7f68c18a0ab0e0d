"""Bodies of /applications: Flink's clients see each job as an application with the same id."""

from __future__ import annotations

from typing_extensions import TypedDict

from runtime.rest.bodies.schema.jobs import JobOverview

ApplicationOverview = TypedDict(
    "ApplicationOverview",
    {
        "id": str,
        "name": str,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "status": str,
        "jobs": dict[str, int],
    },
)
"""A row of the list; `jobs`: the number of its jobs by state."""


class Applications(TypedDict):
    """All of them."""

    applications: list[ApplicationOverview]


Application = TypedDict(
    "Application",
    {
        "id": str,
        "name": str,
        "status": str,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "timestamps": dict[str, int],
        "jobs": list[JobOverview],
    },
)
"""One of them."""


class ApplicationExceptionEntries(TypedDict):
    """Failures of the application itself, which are those of its job."""

    entries: list[dict[str, str]]


class ApplicationExceptions(TypedDict):
    """Always empty: a job has its own."""

    exceptionHistory: ApplicationExceptionEntries


class LogUrl(TypedDict):
    """A page of the dashboard."""

    url: str


class DataSets(TypedDict):
    """There are none: results of jobs are not kept for other jobs."""

    dataSets: list[dict[str, str]]


class StartedApplication(TypedDict):
    """The application that runs."""

    applicationid: str
