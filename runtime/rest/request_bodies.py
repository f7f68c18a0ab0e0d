"""The small JSON bodies that clients send, and what is said about those that cannot be read."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from runtime.common.errors import InvalidInputError
from runtime.jobgraph.limits import PROBLEMS_SHOWN_MAX

WAIT_IDS_MAX = 10_000
DIGESTS_MAX = 10_000
MILLIS_MAX = 253_402_300_799_000
"""The last second of the year 9999."""
LOGS_BYTES_MAX = 1 << 20

ModelT = TypeVar("ModelT", bound=BaseModel)


class WaitRequest(BaseModel):
    """The body of POST /jobs/wait."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    known: Annotated[
        dict[str, Annotated[int, Field(ge=0)]],
        Field(max_length=WAIT_IDS_MAX, description="job id -> the last-modification already known, 0 if none is"),
    ] = {}
    ids: Annotated[list[str], Field(max_length=WAIT_IDS_MAX)] = []
    since: Annotated[int, Field(ge=0, description="milliseconds: the largest last-modification already known")] = 0
    wait: Annotated[float, Field(ge=0, allow_inf_nan=False, description="seconds")] = 0.0
    name: Annotated[str, Field(max_length=64, description="ends an earlier poll of that name; make it random")] = ""


class LogsRequest(BaseModel):
    """The body of POST /jobs/:id/logs. Without streams the answer says only how far the job is."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    streams: Annotated[list[Literal["stdout", "stderr", "log"]], Field(max_length=3)] = ["stdout", "stderr", "log"]
    vertex: Annotated[str | None, Field(description="name or id of one vertex")] = None
    subtask: Annotated[int | None, Field(ge=0)] = None
    attempt: Annotated[int | None, Field(ge=0, description="number of one attempt of each subtask")] = None
    position: Annotated[dict[str, Any], Field(description="how far the reader has come; {} is the beginning")] = {}
    limit: Annotated[int, Field(ge=1, le=LOGS_BYTES_MAX, description="bytes of all pieces, about")] = 256 * 1024
    since: Annotated[int, Field(ge=0, description="long poll: the last-modification already known")] = 0
    wait: Annotated[float, Field(ge=0, allow_inf_nan=False, description="long poll: seconds")] = 0.0


class BlobDigest(BaseModel):
    """A file that a client may have to upload."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    size_bytes: Annotated[int, Field(ge=0)]


class MissingRequest(BaseModel):
    """The body of POST /blobs/missing."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    digests: Annotated[list[BlobDigest], Field(max_length=DIGESTS_MAX)]


class MoveRequest(BaseModel):
    """The body of POST /jobs/:id/move."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    to: Annotated[str, Field(min_length=1, max_length=64, description="id of the JobMaster process")]


class ClientHeartbeat(BaseModel):
    """The body of PATCH /jobs/:id/clientHeartbeat."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    expired_timestamp: Annotated[
        int,
        Field(
            alias="expiredTimestamp",
            ge=0,
            le=MILLIS_MAX,
            description="milliseconds since 1970: cancel the job if no other heartbeat has come by then; 0: never",
        ),
    ]


def parse_body(model: type[ModelT], body: bytes) -> ModelT:
    """Raises InvalidInputError with all problems (400)."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        problems = problems_of(error)
        raise InvalidInputError("; ".join(problems), problems) from error


def problems_of(error: ValidationError) -> tuple[str, ...]:
    """What is wrong with a body, one sentence each, without echoing it at length."""
    found = error.errors(include_input=False, include_url=False)
    sentences = [_sentence(item) for item in found[:PROBLEMS_SHOWN_MAX]]
    more = len(found) - len(sentences)
    return (*sentences, f"and {more} more problems") if more else tuple(sentences)


def _sentence(item: ErrorDetails) -> str:
    where = ".".join(str(part)[:60] for part in item["loc"])
    match item["type"]:
        case "json_invalid":
            return f"the body is not JSON: {item['ctx']['error'][:300]}"
        case "missing":
            return f"{where}: missing"
        case "extra_forbidden":
            return f"{where}: unknown field"
        case "model_type" if not where:
            return "the body must be a JSON object"
        case _:
            return f"{where}: {item['msg'][:300]}"
