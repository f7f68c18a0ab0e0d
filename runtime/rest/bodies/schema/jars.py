"""Bodies of /jars."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from runtime.rest.bodies.schema.jobs import Plan


class JarEntry(TypedDict):
    """What may be run in an uploaded program."""

    name: str
    description: str | None


class JarFile(TypedDict):
    """An uploaded program. `problem`: why its record cannot be read; such a one can only be deleted."""

    id: str
    name: str
    uploaded: int
    entry: list[JarEntry]
    size: int
    namespace: str
    uploader: str
    problem: NotRequired[str]


class Jars(TypedDict):
    """All of them, the newest first."""

    address: str
    files: list[JarFile]


class UploadedJar(TypedDict):
    """The id is the last part of `filename`."""

    filename: str
    status: str


class StartedJar(TypedDict):
    """The job that runs. `warnings`: what its plan has warned of, and slips; not in the answer to a repeat."""

    jobid: str
    applicationId: str
    warnings: NotRequired[list[str]]


class JarPlan(TypedDict):
    """The plan of a run, and what it warns of."""

    plan: Plan
    warnings: NotRequired[list[str]]
