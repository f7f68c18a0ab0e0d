"""The driver `ssh`: TaskManagers and JobMaster processes on hosts of a file in conf/, cold until needed (R65, D-137).

A host has as many workers as the file has lines for it. Which workers run there the host says, by their labels; a host
that cannot be reached says nothing, so its workers are unknown and not gone: those that were seen there last, and one
whose start was under way, are workers until the host answers, or until the file names it no more. Such a host gets no
worker, and is asked again after a while. So does one that has refused a start. A leader that has never reached a host
knows of its workers only those that register.

Hosts are asked rarely, since each question costs them the start of a program; in between a worker is there that was
there at the last answer, or that was started since.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from runtime.aio.thread_calls import in_own_thread
from runtime.common.clock import Clock
from runtime.common.errors import InvalidInputError
from runtime.common.printable import printable
from runtime.common.worker_ids import is_worker_id
from runtime.entrypoint.control.worker_verbs import END, KILL, RELEASE, START, WORDS, WORKERS
from runtime.entrypoint.drivers.ssh_calls import HostRefusedError, HostUnreachableError, SshCalls
from runtime.resourcemanager.driver import DriverError

logger = logging.getLogger(__name__)

_WORDS_MAX = 20
"""Workers whose logs are known until somebody asks."""


@dataclass(slots=True)
class _Host:
    """What is known of one host. `lines`: workers that it may have. `labels`: those that it has, or may have.

    `recent`: when those were started that an answer under way may not have seen. `problem`: why it cannot be reached,
    "" while it can. `refusal`: why it has not started one, for which it is left out until `rests_until`.
    """

    name: str
    lines: int = 0
    labels: set[str] = field(default_factory=set)
    starting: set[str] = field(default_factory=set)
    recent: dict[str, float] = field(default_factory=dict)
    due: float = 0.0
    problem: str = ""
    refusal: str = ""
    rests_until: float = 0.0
    look: asyncio.Future[Mapping[str, Any]] | None = None
    look_began: float = 0.0

    @property
    def room(self) -> int:
        """Workers that it may have beside those that it has."""
        return self.lines - len(self.labels | self.starting)


class SshDriver:
    """Implements `ResourceManagerDriver`.

    `read_lines`: the hosts of the file, read at each look, so that hosts come and go without a restart. `options_on`:
    the -D options on a host of a worker with a label. Times in seconds.
    """

    def __init__(
        self,
        calls: SshCalls,
        read_lines: Callable[[], Collection[str]],
        options_on: Callable[[str, str], Collection[str]],
        clock: Clock,
        *,
        look_interval: float,
        retry_interval: float,
    ) -> None:
        self._calls = calls
        self._read_lines = read_lines
        self._options_on = options_on
        self._clock = clock
        self._look_interval = look_interval
        self._retry_interval = retry_interval
        self._hosts: dict[str, _Host] = {}
        self._logs: dict[str, tuple[str, str]] = {}

    async def workers(self) -> Collection[str]:
        """ResourceManagerDriver. Waits for no host that could not be reached the last time."""
        await self._read_hosts()
        now = self._clock.monotonic()
        for host in self._hosts.values():
            if host.look is None and now >= host.due:
                host.look_began = now
                _, host.look = in_own_thread("ssh-look", partial(self._calls.ask, host.name, [WORKERS]))
        if awaited := [one.look for one in self._hosts.values() if one.look is not None and not one.problem]:
            await asyncio.wait(awaited)
        for host in self._hosts.values():
            self._take(host)
        return [label for host in self._hosts.values() for label in sorted(host.labels)]

    async def start(self, worker_id: str, /, *, is_wanted: Callable[[], bool]) -> None:
        """ResourceManagerDriver. A host that turns out to be out of reach is left out, and the next one is taken."""
        while (host := self._next_host()) is not None:
            if await self._started_on(host, worker_id, is_wanted):
                return
        places = ", ".join(_told(one) for one in self._hosts.values()) or "there is none"
        message = f"no host of the file has room for one more: {places}"
        raise DriverError(message)

    async def release(self, worker_id: str, /, *, kills: bool) -> None:
        """ResourceManagerDriver."""
        host = next((one for one in self._hosts.values() if worker_id in one.labels), None)
        if host is None:
            return
        if host.problem:
            message = f"{host.problem}; it is tried again"
            raise DriverError(message)
        await self._ask(host, [KILL if kills else RELEASE, worker_id])
        host.due = min(host.due, self._clock.monotonic() + 1.0)  # its end is seen soon

    async def last_words(self, worker_id: str, /) -> str:
        """ResourceManagerDriver. Of workers of an earlier JobManager nothing is known."""
        name, path = self._logs.pop(worker_id, ("", ""))
        host = self._hosts.get(name)
        if host is None or host.problem or not path:
            return ""
        try:
            words = str((await self._ask(host, [WORDS, path])).get("words", ""))
        except DriverError as error:
            return f"on {name}, see {path} there ({error})"
        return f"on {name}: {words}" if words else f"on {name}, see {path} there"

    async def end_workers(self) -> None:
        """End all workers, and return when they have ended. DriverError that names hosts out of reach."""
        await self._read_hosts()
        asked = [in_own_thread("ssh-end", partial(self._calls.ask, name, [END]))[1] for name in self._hosts]
        if asked:
            await asyncio.wait(asked)
        if problems := [str(error) for one in asked if (error := one.exception()) is not None]:
            raise DriverError("; ".join(problems))

    async def _read_hosts(self) -> None:
        """Take over the file. A host that it does not name any more stays while it answers that it has workers."""
        try:
            lines = Counter(await asyncio.to_thread(self._read_lines))
        except InvalidInputError as error:
            raise DriverError(str(error)) from error
        for name, count in lines.items():
            if name not in self._hosts:
                self._calls.remember(name)
            self._hosts.setdefault(name, _Host(name)).lines = count
        for host in [one for one in self._hosts.values() if one.name not in lines]:
            host.lines = 0
            if host.look is None and not host.starting and (host.problem or not host.labels):
                del self._hosts[host.name]

    def _take(self, host: _Host) -> None:
        """Take over the answer of a look, if there is one."""
        if host.look is None or not host.look.done():
            return
        look, host.look = host.look, None
        now = self._clock.monotonic()
        try:
            found = labels_in(look.result())
        except (HostUnreachableError, HostRefusedError) as error:
            self._cannot_reach(host, str(error))
            return
        if host.problem:
            logger.info("host %s answers again", host.name)
        host.problem = ""
        host.due = now + self._look_interval
        since = {label for label, began in host.recent.items() if began >= host.look_began}
        host.recent = {label: host.recent[label] for label in since}
        host.labels = found | since

    def _cannot_reach(self, host: _Host, problem: str) -> None:
        if not host.problem:
            unknown = (
                f"; {len(host.labels)} worker(s) there are unknown, and not taken for ended" if host.labels else ""
            )
            logger.warning("%s: it is left out for %.0f s%s", problem, self._retry_interval, unknown)
        host.problem = problem
        host.due = self._clock.monotonic() + self._retry_interval

    def _next_host(self) -> _Host | None:
        """The host with the fewest workers of those with room, in the order of the file."""
        now = self._clock.monotonic()
        candidates = [
            one for one in self._hosts.values() if not one.problem and one.room > 0 and now >= one.rests_until
        ]
        return min(candidates, key=lambda one: len(one.labels | one.starting), default=None)

    async def _started_on(self, host: _Host, worker_id: str, is_wanted: Callable[[], bool]) -> bool:
        """False when the host is out of reach, and has certainly not started it."""
        arguments = [START, worker_id, *_arguments(self._options_on(host.name, worker_id))]
        host.starting.add(worker_id)
        try:
            _, answer = in_own_thread("ssh-start", partial(self._calls.ask, host.name, arguments, is_wanted=is_wanted))
            self._logs[worker_id] = (host.name, str((await answer).get("out", "")))
        except HostUnreachableError as error:
            self._cannot_reach(host, str(error))
            if not error.is_unknown:
                return False
            self._may_run(host, worker_id)
            raise DriverError(str(error)) from error
        except HostRefusedError as error:
            if is_wanted():
                host.refusal = str(error)
                host.rests_until = self._clock.monotonic() + self._retry_interval
            raise DriverError(str(error)) from error
        except asyncio.CancelledError:  # the term is over, and the host may have been told
            self._may_run(host, worker_id)
            host.due = 0.0
            raise
        finally:
            host.starting.discard(worker_id)
        host.refusal = ""
        self._may_run(host, worker_id)
        for name in list(self._logs)[: max(0, len(self._logs) - _WORDS_MAX)]:
            del self._logs[name]
        return True

    def _may_run(self, host: _Host, worker_id: str) -> None:
        host.labels.add(worker_id)
        host.recent[worker_id] = self._clock.monotonic()

    async def _ask(self, host: _Host, arguments: list[str]) -> Mapping[str, Any]:
        _, answer = in_own_thread("ssh", partial(self._calls.ask, host.name, arguments))
        try:
            return await answer
        except HostUnreachableError as error:
            self._cannot_reach(host, str(error))
            raise DriverError(str(error)) from error
        except HostRefusedError as error:
            raise DriverError(str(error)) from error


def labels_in(answer: Mapping[str, Any]) -> set[str]:
    """The labels of an answer, which has passed through a login shell (R52). HostRefusedError for one without."""
    found = answer.get("workers")
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        message = f"it does not say what runs there: {printable(str(answer))[:200]}"
        raise HostRefusedError(message)
    return {one for one in found if is_worker_id(one)}


def _arguments(options: Collection[str]) -> Iterator[str]:
    for text in options:
        yield from ("-D", text)


def _told(host: _Host) -> str:
    return host.problem or host.refusal or f"{host.name} has {len(host.labels | host.starting)} of {host.lines}"
