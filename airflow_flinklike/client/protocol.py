"""Requests, responses and the errors behind status codes. No I/O.

An operation is a generator: it yields a Request or a Pause, and the client sends it the Response. When the answer to a
Request with `tells_loss` is lost (the cluster may have executed it or not), the client throws AnswerLostError into it.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from airflow_flinklike.client.answers import check_answer
from airflow_flinklike.exceptions import (
    AuthenticationError,
    ClusterUnavailableError,
    FlinklikeClientError,
    ForeignAnswerError,
    JobConflictError,
    JobNotFoundError,
    JobRefusedError,
)
from runtime.common.ids import JobId, is_hex_id
from runtime.common.json_text import parse_json

T = TypeVar("T")


class Content(Protocol):
    """Content that is sent in chunks, since it may be larger than memory."""

    def chunks(self) -> Iterator[bytes]:
        """The content from its beginning, at each call."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. `timeout` bounds the seconds to its answer; a long poll adds its wait.

    `traceparent`: the span of the caller, "" without one. Each try sends a `body` in chunks from its beginning.
    """

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Content | None = None
    content_type: str = "application/json"
    timeout: float = 30.0
    tells_loss: bool = False
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait this many seconds, then go on."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Response:
    """Status, headers (lower-case names) and body, from the server at `address`.

    `shown` says which credential the request has shown, for the message of a refusal.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    shown: str = ""
    address: str = ""

    def json(self) -> Any:
        """The body as JSON. Raises ValueError for any other body."""
        try:
            return parse_json(self.body)
        except ValueError as error:
            message = f"it is not JSON but {self.body[:80]!r}"
            raise ValueError(message) from error


_BUSY_SECONDS_MAX = 600.0
"""So long a request waits for a cluster that answers 429."""

Operation = Generator[Request | Pause, Response | None, T]


_SENTENCES_MAX = 200
_SENTENCE_MAX = 10_000


class AnswerLostError(FlinklikeClientError):
    """The connection broke after the request was sent: the cluster may have executed it or not."""


@contextmanager
def understood(asked: str) -> Iterator[None]:
    """Within the block, errors of reading an answer become ForeignAnswerError: it is not a JobManager's (R52)."""
    try:
        yield
    except ValueError as error:
        raise foreign_answer(asked, str(error)[:300]) from error
    except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise foreign_answer(asked, f"{type(error).__name__}: {str(error)[:300]}") from error


def foreign_answer(asked: str, what: str) -> ForeignAnswerError:
    """The error for an answer that is not a JobManager's. `what` completes the sentence about it."""
    return ForeignAnswerError(
        f"the answer of {asked} is not one of a JobManager: {what}. Is this the cluster's REST address?"
    )


def told(request: Request, response: Response) -> Any:
    """The JSON of an answer, after `check_answer`. Raises ValueError."""
    answer = response.json()
    check_answer(request.method, request.path, answer)
    return answer


def told_job_id(value: Any) -> JobId:
    """A job id from an answer. Raises ValueError for any other value."""
    if not isinstance(value, str) or not is_hex_id(value):
        message = f"{str(value)[:80]!r} is not a job id"
        raise ValueError(message)
    return JobId(value)


def json_request(method: str, path: str, document: Any, **more: Any) -> Request:
    """A request with a JSON body."""
    return Request(method, path, body=json.dumps(document).encode(), **more)


def ask(request: Request) -> Operation[Response]:
    """Yield one request, again after each 429 within _BUSY_SECONDS_MAX. Raises the error of any other refusal."""
    waited = 0.0
    while True:
        response = yield request
        assert response is not None, request
        if response.status != 429 or waited > _BUSY_SECONDS_MAX:
            break
        pause = retry_after(response)
        waited += pause
        yield Pause(pause)
    if response.status >= 400:
        raise error_of(response)
    if not 200 <= response.status < 300:
        message = f"it is HTTP {response.status}, and this client goes nowhere else"
        raise ValueError(message)
    return response


def retry_after(response: Response) -> float:
    """The server's `Retry-After` in seconds, within 0.05 and 60."""
    text = response.headers.get("retry-after", "1")
    return min(60.0, max(0.05, float(text))) if text.replace(".", "", 1).isdecimal() else 1.0


def error_of(response: Response) -> FlinklikeClientError:
    """The error that an HTTP status stands for."""
    sentences = tuple(error_sentences(response))
    text = refusal_text(response)
    match response.status:
        case 401 | 403 as status:
            shown = f" ({response.shown})" if response.shown and status == 401 else ""
            return AuthenticationError(f"{text}{shown}")
        case 404 if not sentences:
            message = f"{text}: is this the address of a flinklike cluster?"
            return ClusterUnavailableError(message)
        case 404:
            return JobNotFoundError(text)
        case 409:
            return JobConflictError(text)
        case 400 | 413 | 415 | 422:
            return JobRefusedError(text, sentences or (text,))
        case _:
            return ClusterUnavailableError(text)


def refusal_text(response: Response) -> str:
    """The text of a refusal, on one line."""
    sentences = tuple(error_sentences(response))
    if sentences:
        return "; ".join(sentences)
    start = " ".join(response.body[:120].decode("utf-8", "replace").split())
    return f"HTTP {response.status}" + (f" ({start})" if start else "")


def error_sentences(response: Response) -> Iterator[str]:
    """The sentences of Flink's error body; none when the body is something else."""
    try:
        document = parse_json(response.body)
    except ValueError:
        return
    errors = document.get("errors") if isinstance(document, dict) else None
    if isinstance(errors, list):
        yield from (one[:_SENTENCE_MAX] for one in errors[:_SENTENCES_MAX] if isinstance(one, str))
