"""The history server: `python -m runtime.entrypoint.history_server [-D key=value ...]` (D-115).

It reads the histories of any clusters and answers REST as a JobManager does, for jobs that have ended. It asks no other
process, takes part in no cluster, and writes nothing but its logs.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import NoReturn

from runtime.aio.periodic import Reconciler
from runtime.aio.scope import Scope
from runtime.aio.watch import Watch
from runtime.blob.directory import open_directory
from runtime.common.errors import NotFoundError
from runtime.config.configuration import Configuration
from runtime.config.layout import HISTORY_FOLDER, Layout
from runtime.config.options import history
from runtime.config.options import jobmanager as jm
from runtime.entrypoint import process_options as options
from runtime.entrypoint.job_manager_options import (
    audit_log,
    jwt_sign_in,
    limit_settings,
    page_cookie,
    rest_facts,
    rest_hosts,
    rest_tls,
)
from runtime.entrypoint.process import ProcessContext, run_process
from runtime.entrypoint.process_gateway import OwnProcess
from runtime.history.catalogue import Catalogue
from runtime.history.reader import HistoryReader
from runtime.history.views import HistoryDispatcher, NoBlobs, NoJars, NoResourceManager
from runtime.rest.access.audit import AuditLog
from runtime.rest.access.sign_in import NoPrincipals, TokenSignIn
from runtime.rest.context import LeaderComponents, RestContext
from runtime.rest.server import RestServer, RestSettings


class HistoryServer:
    """Implements `ClusterProcess`."""

    async def run(self, context: ProcessContext) -> None:
        """Serve until cancelled."""
        audit = audit_log(
            context.configuration, context.layout, context.environment, context.clock, process="historyserver"
        )
        with closing(audit):
            await self._serve(context, audit)

    async def _serve(self, context: ProcessContext, audit: AuditLog) -> None:
        configuration = context.configuration
        jobs_max = configuration.get(history.HISTORY_JOBS_MAX)
        catalogue = Catalogue(_readers(configuration, context.layout), context.clock, jobs_max=jobs_max)
        token = options.cluster_token(configuration, context.layout)
        async with Scope("history-server") as scope:
            scope.spawn_eternal("counts of the audit log", audit.run())
            sign_in = None
            if token is not None:
                sign_in = TokenSignIn(token, NoPrincipals(), jwt_sign_in(configuration, context.clock, scope))
            rest = RestServer(_rest_context(context, catalogue, audit), _rest_settings(configuration), sign_in=sign_in)
            rest.bind()
            await rest.start(scope)
            period = options.seconds(configuration, history.HISTORY_REFRESH)
            looking = Reconciler("history-server/look", catalogue.refresh, period=period)
            scope.spawn_eternal("look", looking.run())
            address = f"{configuration.get(history.HISTORY_ADDRESS)}:{rest.port}"
            context.ready(rest_facts(configuration, address))
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                rest.stop()


def _readers(configuration: Configuration, layout: Layout) -> Sequence[HistoryReader]:
    urls = configuration.get(history.HISTORY_DIRS) or (layout.history_url(configuration),)
    return [
        HistoryReader(number, open_directory(url, is_read_only=True), inner=HISTORY_FOLDER)
        for number, url in enumerate(urls)
    ]


def _rest_settings(configuration: Configuration) -> RestSettings:
    bind_address = configuration.get(history.HISTORY_ADDRESS)
    return RestSettings(
        bind_address=bind_address,
        port=configuration.get(history.HISTORY_PORT),
        content_length_max=configuration.get(jm.REST_MAX_CONTENT),
        hosts=(*rest_hosts(configuration), bind_address),
        allowed_hosts=configuration.get(jm.REST_ALLOWED_HOSTS),
        port_option=history.HISTORY_PORT.key,
    )


def _rest_context(context: ProcessContext, catalogue: Catalogue, audit: AuditLog) -> RestContext:
    configuration = context.configuration
    leading = LeaderComponents(HistoryDispatcher(catalogue), NoResourceManager(), NoBlobs(), NoJars(), "")
    return RestContext(
        leader=lambda: leading,
        other_leader=Watch(""),
        task_executor=_no_process,
        process=_no_process,
        own_process=OwnProcess.of(context.environment),
        clock=context.clock,
        configuration=(),
        long_poll_max=options.seconds(configuration, jm.REST_LONG_POLL_MAX),
        refresh_interval_millis=options.millis(configuration, history.HISTORY_REFRESH),
        audit=audit,
        limits=limit_settings(configuration),
        frame_ancestors=configuration.get(jm.WEB_FRAME_ANCESTORS),
        page_cookie=page_cookie(configuration, context.layout, context.clock),
        tls=rest_tls(configuration),
        history=catalogue,
    )


def _no_process(address: str) -> NoReturn:
    message = f"a history server asks no process, so not {address}"
    raise NotFoundError(message)


def main() -> int:
    """Run a history server; the exit code."""
    return run_process("historyserver", HistoryServer, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
