"""The types of /resourcemanager."""

from __future__ import annotations

from typing_extensions import TypedDict


class Worker(TypedDict):
    """A process that a driver has started, or was asked for.

    `id`: its label; `state`: starting, pending (it runs, and does not serve yet), registered, lost (it runs, and does
    not serve any more) or leaving, since then, with the reason; `process`: its id among the processes that are
    registered, "" while it is none; `profile`: what it was started with, `default` is the cluster's own configuration.
    """

    id: str
    kind: str
    state: str
    since: int
    reason: str
    process: str
    profile: str


class Workers(TypedDict):
    """Those of one kind, `taskmanager` or `jobmaster`; `pending`: how many of them do not serve yet.

    `problem`: why the last start failed, "" once one has registered.
    """

    kind: str
    pending: int
    problem: str


class ResourceManager(TypedDict):
    """What starts processes, and which; `kinds` is empty without a driver."""

    driver: str
    kinds: list[Workers]
    workers: list[Worker]
