"""Attempts: which failed requests are retried, at which address and when. For both clients; no I/O, no clock."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from urllib.parse import urlsplit

import httpx

from airflow_flinklike.client.protocol import AnswerLostError, Request, Response, refusal_text
from airflow_flinklike.client.tls_refusals import tls_refusal
from airflow_flinklike.exceptions import (
    ClusterUnavailableError,
    FlinklikeClientError,
    HandshakeRefusedError,
    JobRefusedError,
)

CONNECT_SECONDS = 5.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 3.0
_UNAVAILABLE = frozenset({502, 503, 504})


def is_unavailable(response: Response) -> bool:
    """True for 502, 503 and 504: nobody who leads has answered."""
    return response.status in _UNAVAILABLE


def is_of_cluster(response: Response) -> bool:
    """True for an answer of a JobManager, also of one that does not lead; not for one of a proxy before it."""
    try:
        document = response.json()
    except ValueError:
        return False
    return isinstance(document, dict) and "errors" in document


def check_addresses(addresses: Sequence[str]) -> tuple[str, ...]:
    """Addresses with a scheme and without a trailing slash. Raises JobRefusedError that names the wrong one."""
    cleaned = [one.strip() for one in addresses if one.strip()]
    if not cleaned:
        message = "no cluster address: give http://host:port of the JobManager's REST endpoint"
        raise JobRefusedError(message)
    return tuple(_check_address(one if "://" in one else f"http://{one}") for one in cleaned)


def _check_address(address: str) -> str:
    try:
        parts = urlsplit(address)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        is_good = is_good and not any(letter.isspace() for letter in address) and bool(httpx.URL(address).host)
    except (ValueError, httpx.InvalidURL):
        is_good = False
    if not is_good:
        message = f"{address[:200]!r} is no address of a cluster: expected host:port or http(s)://host:port"
        raise JobRefusedError(message)
    return address.rstrip("/")


def needs_tls(addresses: Sequence[str]) -> bool:
    """True if an address is https. Otherwise no certificates are loaded, which takes longer than a submit."""
    return any(one.startswith("https:") for one in addresses)


class Attempts:
    """The tries of one request: round after round over the addresses, with a pause after each round.

    `budget` bounds the sum of the pauses and of the time lost in timeouts, in seconds: a request survives a restart of
    the cluster. Every address is tried at least once. `first` is the index of the first address; at the end `index` is
    that for the next request: of the address that has answered, or the one behind an address that has not.
    """

    def __init__(self, addresses: Sequence[str], budget: float, *, first: int = 0) -> None:
        self._addresses = addresses
        self.budget = budget
        self._tried = 0
        self.spent = 0.0
        """Seconds of the budget that are used up."""
        self.trouble = ""
        """Why the last try failed."""
        self.is_answered = False
        """True if a JobManager has answered the last try: it cannot do yet what it is asked for."""
        self._refusals: list[str] = []
        """TLS refusals of this round, by address. A retry does not help there."""
        self.is_late = False
        """True: the pauses are over, whatever the budget is. The caller may set it."""
        self._reasons: dict[str, str] = {}
        """Why the last try at each address failed."""
        self.index = first

    @property
    def address(self) -> str:
        """The address of the next try."""
        return self._addresses[self.index]

    @property
    def words(self) -> str:
        """What is missing, for people."""
        where = ", ".join(self._addresses)
        return f"{where} cannot do this yet" if self.is_answered else f"no JobManager answers at {where}"

    def next_pause(self, reason: str, *, lost_seconds: float = 0.0, is_answered: bool = False) -> float:
        """Seconds until the next try. Raises ClusterUnavailableError when the budget is used up."""
        self._tried += 1
        self.is_answered = is_answered
        self.spent += lost_seconds
        self.trouble = self._reasons[self.address] = reason
        self._move_on()
        if self._tried % len(self._addresses):
            return 0.0
        self._refusals.clear()
        if self.is_late or self.spent >= self.budget:
            message = f"{self.words}{self._effort()}: {self._causes()}"
            raise ClusterUnavailableError(message, is_answered=self.is_answered)
        rounds = self._tried // len(self._addresses) - 1
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * float(1 << min(rounds, 10)))
        pause = longest * (0.5 + secrets.randbelow(500) / 1000)
        self.spent += pause
        return pause

    def pause_for_answer(self, response: Response) -> float | None:
        """Seconds until the next try when the answer is 502, 503 or 504; None for every other answer."""
        if not is_unavailable(response):
            return None
        return self.next_pause(refusal_text(response), is_answered=is_of_cluster(response))

    def pause_for_failure(self, request: Request, error: httpx.RequestError) -> float:
        """Seconds until the next try after a failure of the transport. Raises AnswerLostError, FlinklikeClientError."""
        reason = self._reason_of(error)
        refusal = tls_refusal(error)
        if refusal is not None:
            return self._pause_for_refusal(refusal)
        if isinstance(error, httpx.LocalProtocolError | httpx.UnsupportedProtocol):
            message = f"{request.method} {request.path} cannot be sent: {reason}"
            raise FlinklikeClientError(message) from error
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
            return self.next_pause(reason, lost_seconds=_lost_seconds(request, error))
        if request.tells_loss:
            self._move_on()
            raise AnswerLostError(reason) from error
        return self.next_pause(reason, lost_seconds=_lost_seconds(request, error))

    def _reason_of(self, error: httpx.RequestError) -> str:
        reason = str(error) or type(error).__name__
        if isinstance(error, httpx.RemoteProtocolError) and self.address.startswith("http:"):
            return f"{reason} (does that server speak TLS? then ask it by https://)"
        return reason

    def _pause_for_refusal(self, refusal: str) -> float:
        self._refusals.append(f"{self.address}: {refusal}")
        if len(self._refusals) == len(self._addresses):
            message = f"no JobManager can be asked: {'; '.join(self._refusals)}"
            raise HandshakeRefusedError(message)
        return self.next_pause(refusal)

    def _move_on(self) -> None:
        self.index = (self.index + 1) % len(self._addresses)

    def _causes(self) -> str:
        """The cause; with several, each with its address."""
        if len(set(self._reasons.values())) == 1:
            return self.trouble
        return "; ".join(f"{address}: {reason}" for address, reason in self._reasons.items())

    def _effort(self) -> str:
        return f" (tried for {self.budget:.0f} s)" if self.budget >= 1 else ""


def _lost_seconds(request: Request, error: httpx.RequestError) -> float:
    if isinstance(error, httpx.ConnectTimeout):
        return min(CONNECT_SECONDS, request.timeout)
    return request.timeout if isinstance(error, httpx.TimeoutException) else 0.0
