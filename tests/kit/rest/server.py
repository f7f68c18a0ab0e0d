"""The real REST endpoint over fakes on a free port, in its own thread: for clients that block or are processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

from runtime.aio.clock import SystemClock
from runtime.aio.scope import Scope
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.gateways.dispatcher import Empty, JobRequest, SubmitJobRequest, SubmitJobResponse
from runtime.jobgraph.graph import JobGraph
from runtime.jobgraph.parsing import parse_job_graph
from runtime.rest.access.page_cookie import PageCookie
from runtime.rest.access.principal_limits import NO_LIMITS, LimitSettings
from runtime.rest.connections.tls import RestTls
from runtime.rest.server import RestServer, RestSettings
from runtime.security.cluster_key import ClusterKey
from tests.kit.rest.fakes import FakeBlobs, FakeDispatcher, RestFakes, shown

TOKEN = "the-cluster-token"
PAGE_KEY = ClusterKey(b"p" * 32)
_PATIENCE = 20.0


class ObedientDispatcher(FakeDispatcher):
    """Runs what is submitted as far as `next_status`, cancels what is to be cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.next_status = JobStatus.FINISHED

    async def submit_job(self, request: SubmitJobRequest, /) -> SubmitJobResponse:
        """Accept, and be where the test wants the job to be."""
        response = await super().submit_job(request)
        if request.job_id not in self.summaries:
            self.put(request.job_id, self.next_status)
        return response

    async def cancel_job(self, request: JobRequest, /) -> Empty:
        """At once."""
        self.put(request.job_id, JobStatus.CANCELED, modified=2000)
        return await super().cancel_job(request)

    def graph(self) -> JobGraph:
        """The one that was submitted last."""
        return parse_job_graph(self.submitted[-1].graph)


class RestThread:
    """Serves between `__enter__` and `__exit__`. The fakes belong to its loop: change them with `do`."""

    def __init__(
        self, tls: RestTls | None = None, limits: LimitSettings = NO_LIMITS, *, long_poll_max: float = 5.0
    ) -> None:
        self._tls = tls
        self._limits = limits
        self._long_poll_max = long_poll_max
        self.dispatcher = ObedientDispatcher()
        self.fakes = RestFakes()
        self.fakes.dispatcher = self.dispatcher
        self.address = ""
        self.server: RestServer
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_PATIENCE)
        assert not self._thread.is_alive()
        self._loop.close()

    def do(self, change: Callable[[], Any]) -> Any:
        """Call `change` on the server's loop; its value."""

        async def changed() -> Any:
            return change()

        return asyncio.run_coroutine_threadsafe(changed(), self._loop).result(_PATIENCE)

    def put(self, job_id: JobId, status: JobStatus, modified: int = 1000) -> None:
        """Make a job known, or move it on."""
        self.do(lambda: self.dispatcher.put(job_id, status, modified))

    def forget(self) -> None:
        """What has been put, submitted and uploaded. On the server's loop (`do`)."""
        self.dispatcher = self.fakes.dispatcher = ObedientDispatcher()
        self.fakes.blobs = FakeBlobs()

    async def _serve(self) -> None:
        settings = RestSettings("127.0.0.1", 0, 1 << 20)
        context = replace(
            self.fakes.context(),
            tls=self._tls,
            limits=self._limits,
            long_poll_max=self._long_poll_max,
            page_cookie=PageCookie(PAGE_KEY, SystemClock()),
        )
        self.server = server = RestServer(context, settings, sign_in=shown(TOKEN))
        server.bind()
        async with Scope("test") as scope:
            await server.start(scope)
            self.address = f"{'http' if self._tls is None else 'https'}://127.0.0.1:{server.port}"
            self._ready.set()
            await self._stop.wait()
            server.stop()
