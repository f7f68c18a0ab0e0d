"""The delegation tokens of a TaskManager (R51): it writes files that its tasks read, and calls receivers.

Each provider's latest tokens are `<name>.json` in a directory of this TaskManager's life, for its user, its slots and
its Spark alone, replaced as a whole: a task that began hours ago reads the newest, and the loss of a leader takes no
token away.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from runtime.aio.scope import Scope
from runtime.aio.thread_calls import ThreadCalls
from runtime.aio.watch import Watch
from runtime.common.errors import InvalidInputError, UnavailableError
from runtime.gateways.delegation_tokens import DelegationToken, DelegationTokenReceiver, ObtainedTokens
from runtime.jobgraph.task_credentials import credentials_file
from runtime.security.token_content import decode_values
from runtime.taskexecutor.credentials.storage_credentials import StorageCredentials

logger = logging.getLogger(__name__)

_RECEIVE_SECONDS_MAX = 60.0
_AGAIN_SECONDS = 30.0
_WRITE_AGAIN_SECONDS = 5.0


class DelegationTokenReceiverRepository:
    """`take` what the leader sends; `run` hands it to receivers."""

    def __init__(
        self, directory: Path, receivers: Mapping[str, DelegationTokenReceiver], group: int | None = None
    ) -> None:
        self._directory = directory
        self._group = group
        self._receivers = {
            name: (receiver, ThreadCalls(f"token-receiver-{name}", _RECEIVE_SECONDS_MAX))
            for name, receiver in receivers.items()
        }
        self._storage = StorageCredentials.of_directory(directory)
        self._latest: Watch[Mapping[str, DelegationToken]] = Watch({})
        self._unwritten: Watch[frozenset[str]] = Watch(frozenset())
        """Providers whose latest tokens are in no file, because the storage failed."""

    def take(self, tokens: Sequence[DelegationToken]) -> None:
        """These take the place of those before. When this returns, tasks find them, unless the storage fails: then as
        soon as it does not (`run`).
        """
        news = {token.provider: token for token in tokens if token != self._latest.value.get(token.provider)}
        taken: dict[str, DelegationToken] = {}
        for name, token in news.items():
            try:
                path, content = credentials_file(self._directory, name), _content_of(token)
            except (InvalidInputError, KeyError) as error:
                logger.error("tasks do not get the new delegation tokens of %s: %s", name[:80], error)  # noqa: TRY400
                continue
            taken[name] = token
            self._note(name, is_written=self._write(path, content, name))
        if taken:
            self._show(taken)

    def _show(self, taken: Mapping[str, DelegationToken]) -> None:
        self._storage.install()
        self._storage.forget_opened()
        self._latest.set({**self._latest.value, **taken})

    def _note(self, name: str, *, is_written: bool) -> None:
        unwritten = self._unwritten.value - {name} if is_written else self._unwritten.value | {name}
        if unwritten != self._unwritten.value:
            self._unwritten.set(unwritten)

    def _write(self, path: Path, content: Mapping[str, object], name: str) -> bool:
        """Small files beside the slots' own: no slower than a log line. Not synced: they end with this life."""
        try:
            draft = path.with_suffix(".new")
            draft.unlink(missing_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file)
                if self._group is not None:  # R50: slots are other users, of this group
                    os.fchown(descriptor, -1, self._group)
                    os.fchmod(descriptor, 0o640)
            draft.replace(path)
        except OSError as error:
            if name not in self._unwritten.value:
                text = "tasks do not get the new delegation tokens of %s yet: %s"
                logger.error(text, name, error)  # noqa: TRY400
            return False
        logger.info("delegation tokens of %s received", name)
        return True

    async def _write_again(self) -> None:
        """Repeat writes that failed, as on a full disk: the next tokens may come after the present ones have ended.
        Eternal.
        """
        while True:
            _ = await self._unwritten.wait_until(bool)
            await asyncio.sleep(_WRITE_AGAIN_SECONDS)
            for name in sorted(self._unwritten.value):
                token = self._latest.value[name]
                if self._write(credentials_file(self._directory, name), _content_of(token), name):
                    self._note(name, is_written=True)
                    self._show({name: token})

    async def run(self) -> None:
        """Call each receiver with the latest tokens of its provider; no receiver waits for another. Eternal."""
        async with Scope("token-receivers") as scope:
            scope.spawn_eternal("files", self._write_again())
            for name, (receiver, calls) in self._receivers.items():
                scope.spawn_eternal(name, self._serve(name, receiver, calls))
            await asyncio.get_running_loop().create_future()

    async def _serve(self, name: str, receiver: DelegationTokenReceiver, calls: ThreadCalls) -> None:
        given: DelegationToken | None = None
        generation = -1
        while True:
            latest = await self._latest.wait_changed(generation)
            generation = self._latest.generation
            token = latest.get(name)
            while token is not None and token != given:
                if await self._give(name, receiver, calls, token):
                    given = token
                else:
                    await asyncio.sleep(_AGAIN_SECONDS)
                token = self._latest.value.get(name)

    async def _give(
        self, name: str, receiver: DelegationTokenReceiver, calls: ThreadCalls, token: DelegationToken
    ) -> bool:
        """False when the receiver still hangs with earlier tokens: it gets the latest ones later."""
        tokens = ObtainedTokens(decode_values(token.content), token.valid_until_millis)
        try:
            await calls.call(lambda: receiver.receive(tokens))
        except UnavailableError as error:
            logger.error("the receiver of delegation tokens of %s does not get the newest: %s", name, error)  # noqa: TRY400
            return False
        except Exception as error:  # noqa: BLE001 - a receiver's boundary: others get their tokens
            logger.error("the receiver of delegation tokens of %s failed: %s", name, type(error).__name__)  # noqa: TRY400
        return True


def _content_of(token: DelegationToken) -> Mapping[str, object]:
    """The content of the file that tasks read. Raises InvalidInputError."""
    content: dict[str, object] = {"values": dict(decode_values(token.content))}
    if token.valid_until_millis:
        content["expires_at"] = token.valid_until_millis / 1000
    return content
