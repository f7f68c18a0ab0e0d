"""DelegationTokenManager: obtains credentials of external services, and renews them before they end (R51).

One per term of a leading JobManager, in memory only: a new leader obtains new tokens, and TaskManagers use the old ones
meanwhile. Providers are asked independently: one that fails or hangs does not hold up the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from runtime.aio.scope import Scope
from runtime.aio.thread_calls import ThreadCalls
from runtime.aio.watch import Watch
from runtime.common.clock import Clock
from runtime.common.errors import FlinklikeError, InvalidInputError
from runtime.common.printable import printable
from runtime.gateways.delegation_tokens import (
    DelegationToken,
    DelegationTokenProvider,
    DelegationTokenStatus,
    ObtainedTokens,
)
from runtime.security.core.token_renewal import RenewalSettings, TokenRenewal
from runtime.security.token_content import checked_values, encode_values

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often a provider is asked whether it has new tokens; for a file, that is one `stat`."""

ANSWER_SECONDS_MAX = 120.0
_SLEEP_SECONDS_MAX = 3600.0
_FAILURE_LENGTH_MAX = 300

Distribute = Callable[[Sequence[DelegationToken]], None]


class ProviderCalls:
    """One provider and the thread in which it is called. Lives as long as the process, over all its terms."""

    def __init__(self, name: str, provider: DelegationTokenProvider) -> None:
        self.name = name
        self._provider = provider
        self._calls = ThreadCalls(f"delegation-tokens-{name}", ANSWER_SECONDS_MAX)

    async def obtain(self) -> ObtainedTokens:
        """New tokens. Raises what the provider raises, UnavailableError while an earlier call has not come back."""
        return await self._calls.call(lambda: _checked(self._provider.obtain()))

    async def state(self) -> object:
        """The provider's state. Raises as `obtain`."""
        return await self._calls.call(self._provider.state)


def _checked(tokens: ObtainedTokens) -> ObtainedTokens:
    return ObtainedTokens(checked_values(tokens.values), int(tokens.valid_until_millis))


class _Provider:
    """The state of one provider in a term."""

    def __init__(self, calls: ProviderCalls, settings: RenewalSettings) -> None:
        self.calls = calls
        self.renewal = TokenRenewal(settings)
        self.token: DelegationToken | None = None
        self.failure = ""
        self.state: object = None


class DelegationTokenManager:
    """`run` while the term lasts; `current` and `statuses` at any time."""

    def __init__(self, providers: Sequence[ProviderCalls], settings: RenewalSettings, clock: Clock) -> None:
        self._clock = clock
        self._providers: Mapping[str, _Provider] = {calls.name: _Provider(calls, settings) for calls in providers}
        self._asked: set[str] = set()
        self._all_asked: Watch[bool] = Watch(not providers)

    async def run(self, distribute: Distribute) -> None:
        """Obtain and renew tokens, and pass them to `distribute`, until cancelled."""
        async with Scope("delegation-tokens") as scope:
            for provider in self._providers.values():
                scope.spawn_eternal(provider.calls.name, self._serve(provider, distribute))
            await asyncio.get_running_loop().create_future()

    async def wait_asked(self, timeout: float) -> None:
        """Return when each provider has answered or failed once, after `timeout` seconds at the latest.

        A TaskManager that registers then gets all tokens that there are.
        """
        if self._all_asked.value:
            return
        try:
            async with asyncio.timeout(timeout):
                await self._all_asked.wait_until(bool)
        except TimeoutError:
            missing = sorted(set(self._providers) - self._asked)
            logger.warning("TaskManagers register before the delegation tokens of %s are there", ", ".join(missing))

    def current(self) -> tuple[DelegationToken, ...]:
        """The tokens that have not expired."""
        now = self._clock.epoch_millis()
        tokens = [one.token for one in self._providers.values() if one.token is not None]
        return tuple(token for token in tokens if not 0 < token.valid_until_millis <= now)

    def statuses(self) -> Sequence[DelegationTokenStatus]:
        """The state of each provider. Of the tokens it tells only their end."""
        return [
            DelegationTokenStatus(
                name,
                0 if one.token is None else one.token.valid_until_millis,
                one.renewal.failures,
                one.failure,
                is_obtained=one.token is not None,
            )
            for name, one in self._providers.items()
        ]

    async def _serve(self, provider: _Provider, distribute: Distribute) -> None:
        while True:
            try:
                await self._wait_due(provider)
                tokens = await provider.calls.obtain()
                self._take(provider, tokens, distribute)
            except Exception as error:  # noqa: BLE001 - the boundary of one provider: the others go on
                self._note_failure(provider, error)
            self._asked.add(provider.calls.name)
            if not self._all_asked.value and len(self._asked) == len(self._providers):
                self._all_asked.set(True)

    async def _wait_due(self, provider: _Provider) -> None:
        """Return when a renewal is due, or the provider has new tokens."""
        renewal = provider.renewal
        while True:
            left = renewal.due_at - self._clock.monotonic()
            if left > 0:
                await asyncio.sleep(min(left, LOOK_SECONDS if provider.state is not None else _SLEEP_SECONDS_MAX))
            before, provider.state = provider.state, None
            provider.state = await provider.calls.state()
            if provider.state != before:
                renewal.changed()
            if renewal.due_at <= self._clock.monotonic():
                return

    def _take(self, provider: _Provider, tokens: ObtainedTokens, distribute: Distribute) -> None:
        name, ends = provider.calls.name, tokens.valid_until_millis
        lifetime = (ends - self._clock.epoch_millis()) / 1000 if ends else None
        if lifetime is not None and lifetime <= 0:
            message = "its tokens have expired already"
            raise InvalidInputError(message)
        token = DelegationToken(name, encode_values(tokens.values), ends)
        provider.renewal.obtained(self._clock.monotonic(), lifetime)
        provider.failure = ""
        if token != provider.token:
            provider.token = token
            logger.info(
                "delegation tokens of %s obtained, %s",
                name,
                "which do not end" if lifetime is None else f"for {lifetime:.1f} s",
            )
            distribute((token,))

    def _note_failure(self, provider: _Provider, error: Exception) -> None:
        pause = provider.renewal.failed(self._clock.monotonic())
        # Errors of libraries may hold secrets in their text, such as a URL with its query.
        said = (
            printable(" ".join(str(error).split()))[:_FAILURE_LENGTH_MAX] if isinstance(error, FlinklikeError) else ""
        )
        provider.failure = said or type(error).__name__
        left = "there are none"
        if provider.token is not None:
            ends = provider.token.valid_until_millis
            seconds = (ends - self._clock.epoch_millis()) / 1000
            left = "those before do not end" if not ends else f"those before end in {seconds:.0f} s"
            if ends and seconds <= 0:
                left = "those before have ended"
        logger.warning(
            "delegation tokens of %s cannot be obtained, %s; next try in %.0f s: %s",
            provider.calls.name, left, pause, provider.failure,
        )  # fmt: skip
