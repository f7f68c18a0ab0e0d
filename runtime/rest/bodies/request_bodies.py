"""The small JSON bodies of requests, and the messages about those that cannot be read."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, FailFast, Field, ValidationError
from pydantic_core import ErrorDetails

from runtime.common.errors import InvalidInputError
from runtime.common.namespaces import ALL_NAMESPACES
from runtime.common.shares import PRIORITY_MAX, PRIORITY_MIN
from runtime.jobgraph.limits import PARALLELISM_MAX, PROBLEMS_LISTED_MAX, PROBLEMS_SHOWN_MAX
from runtime.logs.levels import DEFAULT, LEVELS, NAME_LENGTH_MAX
from runtime.rest.bodies.job_selection import LIMIT_MAX, TEXT_LENGTH_MAX, JobSelection
from runtime.rest.bodies.text_patterns import LOGGER, NAMESPACE, PRINCIPAL_NAME, JobIdText
from runtime.security.principals import Role

WAIT_IDS_MAX = 10_000
DIGESTS_MAX = 10_000
MILLIS_MAX = 253_402_300_799_000
"""The last second of the year 9999."""
LIFETIME_MAX = 10 * 366 * 86_400
LOGS_BYTES_MAX = 1 << 20
SMALL_VALUES_MAX = 100_000

ModelT = TypeVar("ModelT", bound=BaseModel)


class WaitRequest(BaseModel):
    """The body of POST /jobs/wait."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    known: Annotated[
        dict[str, Annotated[int, Field(ge=0)]],
        FailFast(),
        Field(max_length=WAIT_IDS_MAX, description="job id -> the last-modification already known, 0 if none is"),
    ] = {}
    ids: Annotated[list[JobIdText], FailFast(), Field(max_length=WAIT_IDS_MAX)] = []
    since: Annotated[int, Field(ge=0, description="milliseconds: the largest last-modification already known")] = 0
    wait: Annotated[float, Field(ge=0, allow_inf_nan=False, description="seconds")] = 0.0
    name: Annotated[str, Field(max_length=64, description="ends an earlier poll of that name; make it random")] = ""


class SparkUiRequest(BaseModel):
    """The body of POST /taskmanagers/{id}/spark-ui."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    environment: Annotated[
        str, Field(max_length=64, pattern=r"^[0-9a-f]*$", description="its key; the default one where it is left out")
    ] = ""


class OverviewQuery(BaseModel):
    """The query of GET /jobs/overview."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    state: Annotated[str, Field(max_length=40, description="a JobStatus, or unfinished")] = ""
    name: Annotated[
        str, Field(max_length=TEXT_LENGTH_MAX, description="a part of the name, or the beginning of the id")
    ] = ""
    sort: Annotated[str, Field(max_length=40, description="newest, oldest, longest or name")] = ""
    after: Annotated[str, Field(max_length=64, description="`next` of the page before")] = ""
    limit: Annotated[int, Field(ge=0, le=LIMIT_MAX, description="jobs of a page, 0: all")] = 0
    since: Annotated[int, Field(ge=0, le=MILLIS_MAX, description="submitted from then on, milliseconds")] = 0
    until: Annotated[int, Field(ge=0, le=MILLIS_MAX, description="submitted before then, milliseconds; 0: ever")] = 0
    label: Annotated[
        str, Field(max_length=TEXT_LENGTH_MAX, description="a label of the failure, as type=USER, or its value")
    ] = ""

    def selection(self) -> JobSelection:
        """Raises InvalidInputError."""
        page = (self.sort, self.after, self.limit)
        return JobSelection(self.state, self.name, *page, self.since, self.until, self.label)


class LogsRequest(BaseModel):
    """The body of POST /jobs/:id/logs. Without streams the answer says only how far the job is."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    streams: Annotated[list[Literal["stdout", "stderr", "log"]], FailFast(), Field(max_length=3)] = [
        "stdout",
        "stderr",
        "log",
    ]
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
    digests: Annotated[list[BlobDigest], FailFast(), Field(max_length=DIGESTS_MAX)]


class MoveRequest(BaseModel):
    """The body of POST /jobs/:id/move."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    to: Annotated[str, Field(min_length=1, max_length=64, description="id of the JobMaster process")]


class JarRunBody(BaseModel):
    """The body of POST /jars/:id/run and /plan; each may be missing, or null. The body bounds all texts."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    entry_class: Annotated[
        str | None,
        Field(
            # flink-rest-client writes the second one.
            validation_alias=AliasChoices("entryClass", "entry-class"),
            max_length=1024,
            description="module:pipeline, a script, or a jar's main class",
        ),
    ] = None
    program_args: Annotated[str | None, Field(alias="programArgs", description="split as a shell splits them")] = None
    program_args_list: Annotated[
        list[str] | None,
        FailFast(),
        Field(alias="programArgsList"),
    ] = None
    parallelism: Annotated[int | None, Field(ge=1, le=PARALLELISM_MAX)] = None
    job_id: Annotated[JobIdText | None, Field(alias="jobId", description="id of the job; random without it")] = None
    application_id: Annotated[
        JobIdText | None, Field(alias="applicationId", description="of run-application: the same as jobId")
    ] = None
    flink_configuration: Annotated[
        dict[str, str] | None,
        FailFast(),
        Field(alias="flinkConfiguration", description="spark.*, pipeline.name, parallelism.default"),
    ] = None
    savepoint_path: Annotated[str | None, Field(alias="savepointPath")] = None
    allow_non_restored_state: Annotated[bool | None, Field(alias="allowNonRestoredState")] = None
    restore_mode: Annotated[str | None, Field(alias="restoreMode", max_length=40)] = None
    claim_mode: Annotated[str | None, Field(alias="claimMode", max_length=40)] = None
    queue: Annotated[
        str | None, Field(max_length=127, description="queue of the job; default: that of its submitter, default")
    ] = None
    priority: Annotated[
        int | None, Field(ge=PRIORITY_MIN, le=PRIORITY_MAX, description="in its queue; the highest is served first")
    ] = None


class LogLevel(BaseModel):
    """The body of POST /log-level."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    logger: Annotated[str, Field(max_length=NAME_LENGTH_MAX, json_schema_extra={"pattern": LOGGER})]
    level: Annotated[str, Field(max_length=10, json_schema_extra={"enum": [*LEVELS, DEFAULT]})]


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


TokenLifetime = Annotated[int, Field(ge=0, le=LIFETIME_MAX, description="seconds; 0: without an end")]


class NewPrincipal(BaseModel):
    """The body of POST /tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    name: Annotated[str, Field(max_length=127, json_schema_extra={"pattern": PRINCIPAL_NAME})]
    role: Annotated[str, Field(max_length=40, json_schema_extra={"enum": [role.text for role in Role]})]
    namespace: Annotated[
        str, Field(max_length=63, description="* is all of them", json_schema_extra={"pattern": NAMESPACE})
    ] = ALL_NAMESPACES
    lifetime: TokenLifetime = 0
    certificate: Annotated[
        str, Field(max_length=256, description="sign in by client certificates of this name, in place of a token")
    ] = ""


class RotatedToken(BaseModel):
    """The body of POST /tokens/:name/rotate."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    lifetime: TokenLifetime = 0


def parse_body(model: type[ModelT], body: bytes, values_max: int = SMALL_VALUES_MAX) -> ModelT:
    """Raises InvalidInputError with the problems (400). A wrong body costs no more than a right one of its size."""
    values = _values(body)
    if values > values_max:
        message = f"the body has {values} JSON values, the limit is {values_max}: put large data into files"
        raise InvalidInputError(message)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        problems = _problems(error)
        raise InvalidInputError("; ".join(problems), problems) from error


def _values(body: bytes) -> int:
    """How many JSON values there are, at most: each costs its reader more than its bytes do."""
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def _problems(error: ValidationError) -> tuple[str, ...]:
    """What is wrong with a body, one sentence each, without echoing it at length.

    R41: a list ends at its first problem (`FailFast`), so many problems are many unknown fields.
    """
    count = error.error_count()
    if count > PROBLEMS_LISTED_MAX:
        return (f"the body has {count} problems: most of them are fields that are not known here",)
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
