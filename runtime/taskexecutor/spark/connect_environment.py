"""The default Spark environment of a TaskManager whose slots are clients of a Spark Connect server (D-139).

Nothing is started here, and nothing of it is lost: a task whose server does not answer fails, and the next one asks
again. Invariant: every session that a slot process was given is released at the server when the process has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Mapping

from runtime.common.errors import NotFoundError, UnavailableError
from runtime.rpc.spark_connect import SparkConnectServer
from runtime.taskexecutor.spark.environment import ClosedSession, SparkLoss
from runtime.taskexecutor.spark.without_jvm import WithoutJvm
from runtime.taskexecutor.spark_protocol.sessions import SlotSession

logger = logging.getLogger(__name__)

USER_ID = "flinklike"
"""Of all sessions. A session is found by its own id, which no other job knows."""


class ConnectEnvironment(WithoutJvm):
    """`master`: the `sc://` address. `conf`: what each session begins with."""

    problem = ""
    is_ready = True

    def __init__(
        self,
        master: str,
        server: SparkConnectServer,
        token: str,
        conf: Mapping[str, str],
    ) -> None:
        super().__init__()
        self._master = master
        self._server = server
        self._token = token
        self._conf = dict(conf)

    @property
    def is_warm(self) -> bool:
        """True: whatever is warm is at the server."""
        return True

    async def open_session(self, slot_index: int, shares: int = 1) -> SlotSession:
        """The name of a session, which the server makes when its client first asks for something."""
        del slot_index, shares
        session_id = str(uuid.UUID(bytes=os.urandom(16), version=4))
        return SlotSession(
            session_id, 0, self._token, "", conf=self._conf, remote=_with_parameters(self._master, session_id)
        )

    async def cancel_session_jobs(self, session: SlotSession) -> None:
        """Operations of the session fail in the slot process. Raises UnavailableError."""
        await self._server.interrupt(USER_ID, session.session_id)

    async def close_session(self, session: SlotSession) -> ClosedSession:
        """The server ends what the session has there. One that does not answer ends it by itself, after its timeout."""
        try:
            await self._server.release(USER_ID, session.session_id)
        except UnavailableError as error:
            logger.warning("session %s is left to its server: %s", session.session_id, error)
        return ClosedSession()

    async def page(self, target: str, prefix: str) -> tuple[bytes, bytes]:
        """Raises NotFoundError: the pages are the server's."""
        del target, prefix
        message = "this TaskManager is the client of a Spark Connect server, which has the pages of Spark"
        raise NotFoundError(message)

    async def wait_lost(self) -> SparkLoss:
        """Never returns: there is nothing to lose."""
        await asyncio.Event().wait()
        return SparkLoss("")

    async def end(self, loss: SparkLoss) -> None:
        """There is nothing to end."""

    async def give_up(self, reason: str) -> None:
        """There is nothing to end."""

    async def stop(self) -> None:
        """There is nothing to end."""


def _with_parameters(master: str, session_id: str) -> str:
    address, _, parameters = master.partition(";")
    address = address if address.endswith("/") else f"{address}/"
    return ";".join(filter(None, (address, parameters, f"user_id={USER_ID}", f"session_id={session_id}")))
