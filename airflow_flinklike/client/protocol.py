"""Requests, responses and the errors behind status codes. No I/O.

An operation is a generator: it yields a Request or a Pause and is sent the Response. When the answer to a Request with
`tells_loss` is lost (it may or may not have been executed), AnswerLostError is thrown into it.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from airflow_flinklike.artifacts import BlobSource
from airflow_flinklike.exceptions import (
    AuthenticationError,
    ClusterUnavailableError,
    FlinklikeClientError,
    JobConflictError,
    JobNotFoundError,
    JobRefusedError,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. `timeout` is how long the answer may take; a long poll adds its wait.

    `body` is bytes or a source that is streamed in chunks, and anew at every try.
    """

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | BlobSource | None = None
    content_type: str = "application/json"
    timeout: float = 30.0
    tells_loss: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait this many seconds, then go on."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Response:
    """Status, headers (lower-case names) and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON. Raises ClusterUnavailableError when it is none: this is not our REST endpoint."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            message = f"the answer is not JSON but {self.body[:80]!r}: is this the cluster's REST address?"
            raise ClusterUnavailableError(message) from error


Operation = Generator[Request | Pause, Response | None, T]


class AnswerLostError(FlinklikeClientError):
    """The connection broke after the request was sent."""


def json_request(method: str, path: str, document: Any, **more: Any) -> Request:
    """A request with a JSON body."""
    return Request(method, path, body=json.dumps(document).encode(), **more)


def ask(request: Request) -> Operation[Response]:
    """Yield one request; wait out 429; raise the error of any other refusal."""
    while True:
        response = yield request
        assert response is not None, request
        if response.status != 429:
            break
        yield Pause(retry_after(response))
    if response.status >= 400:
        raise error_of(response)
    return response


def retry_after(response: Response) -> float:
    """Seconds that the server asks to wait, within bounds."""
    text = response.headers.get("retry-after", "1")
    return min(60.0, max(0.05, float(text))) if text.replace(".", "", 1).isdecimal() else 1.0


def error_of(response: Response) -> FlinklikeClientError:
    """The error that an HTTP status stands for."""
    sentences = tuple(error_sentences(response))
    text = refusal_text(response)
    match response.status:
        case 401 | 403:
            return AuthenticationError(text)
        case 404 if not sentences:
            message = f"{text}: is this the address of a flinklike cluster?"
            return ClusterUnavailableError(message)
        case 404:
            return JobNotFoundError(text)
        case 409:
            return JobConflictError(text)
        case 400 | 413 | 422:
            return JobRefusedError(text, sentences or (text,))
        case _:
            return ClusterUnavailableError(text)


def refusal_text(response: Response) -> str:
    """What a refusal says, in one sentence."""
    sentences = tuple(error_sentences(response))
    if sentences:
        return "; ".join(sentences)
    start = " ".join(response.body[:120].decode("utf-8", "replace").split())
    return f"HTTP {response.status}" + (f" ({start})" if start else "")


def error_sentences(response: Response) -> Iterator[str]:
    """The sentences of Flink's error body; none when the body is something else."""
    try:
        document = json.loads(response.body)
    except ValueError:
        return
    errors = document.get("errors") if isinstance(document, dict) else None
    if isinstance(errors, list):
        yield from map(str, errors)
