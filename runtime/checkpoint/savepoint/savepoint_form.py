"""What `_metadata` of a savepoint says: the job, each query with its batch, and every file with its digest (R60).

The form has a version. A reader takes this version only, and says of another what wrote it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from runtime.common.errors import InvalidInputError
from runtime.common.json_text import parse_json
from runtime.common.stream_progress import NO_BATCH

SAVEPOINT_VERSION = 1
METADATA = "_metadata"
METADATA_BYTES_MAX = 256 * 1024 * 1024
SINK_LOG = "_sink/_spark_metadata"
"""Below the directory of a query: the log of its file sink."""
_TEXT_MAX = 64 * 1024
MILLIS_MAX = 253_402_300_799_999
"""The end of the year 9999."""
_PATH_MAX = 1024


def _relative(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not path or len(path) > _PATH_MAX or "\0" in path or path != "/".join(parts) or {"..", "/"} & set(parts):
        message = "a path in a savepoint is relative, and leads nowhere else"
        raise ValueError(message)
    return path


_RelativePath = Annotated[str, AfterValidator(_relative)]
_Text = Annotated[str, Field(max_length=_TEXT_MAX)]
_Number = Annotated[int, Field(ge=0)]
_Millis = Annotated[int, Field(ge=-MILLIS_MAX, le=MILLIS_MAX)]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _SavepointModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class SavepointFile(_SavepointModel):
    """A file below the directory of a query; `path` is relative to that directory."""

    path: _RelativePath
    size: _Number
    sha256: _Digest


class StateOperator(_SavepointModel):
    """A stateful operator of a query, as Spark's metadata of its state names it."""

    operator_id: _Number
    name: _Text
    partitions: _Number


class QuerySnapshot(_SavepointModel):
    """What a copy of a query's directory holds: everything up to one committed batch, and nothing behind it.

    `batch_id`: that batch; NO_BATCH for a query that has committed none. `query_id`: Spark's, "" before its first
    start. `watermark_millis`: of the event time after that batch. `offsets`: how far each source was read, in the
    source's own text. `sink_path`: the directory of a file sink whose log is part of the copy, "" for none.
    """

    query_id: _Text = ""
    batch_id: Annotated[int, Field(ge=NO_BATCH)] = NO_BATCH
    watermark_millis: _Millis = 0
    offsets: tuple[_Text, ...] = ()
    operators: tuple[StateOperator, ...] = ()
    sink_path: _Text = ""
    files: tuple[SavepointFile, ...] = ()


class SavepointQuery(_SavepointModel):
    """A subtask of a query: the copy, and what was known of the query when the copy was made.

    `splits`: the names of those that it had; empty for a query without, and in savepoints of earlier releases.

    `sources` and `sink` are Spark's descriptions, `state_rows` is of its last progress, and `state_schema` has the
    columns of its state; all of them are for people, and no restore depends on them.
    """

    uid: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_relative)]
    subtask_index: _Number
    parallelism: Annotated[int, Field(ge=1)]
    splits: Annotated[tuple[_Text, ...], Field(exclude_if=lambda splits: not splits)] = ()
    snapshot: QuerySnapshot
    sources: tuple[_Text, ...] = ()
    sink: _Text = ""
    state_rows: _Number = 0
    state_schema: _Text = ""

    @property
    def directory(self) -> str:
        """Of its files, relative to the savepoint."""
        return f"{self.uid}/{self.subtask_index}"


class Savepoint(_SavepointModel):
    """A savepoint. `software_version` and `spark_version` wrote it; times are milliseconds since the epoch."""

    version: Literal[1] = 1
    job_id: _Text
    job_name: _Text
    checkpoint_id: _Number
    trigger_millis: Annotated[int, Field(ge=0, le=MILLIS_MAX)]
    software_version: _Text
    spark_version: _Text = ""
    queries: tuple[SavepointQuery, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for query in self.queries for file in query.snapshot.files)

    def query(self, uid: str, subtask_index: int) -> SavepointQuery | None:
        """The subtask of a query, None for one that is not in the savepoint."""
        for one in self.queries:
            if (one.uid, one.subtask_index) == (uid, subtask_index):
                return one
        return None


def savepoint_text(savepoint: Savepoint) -> bytes:
    """The content of `_metadata`: the savepoint as JSON, with a digest over all of it."""
    body = savepoint.model_dump(mode="json")
    return json.dumps({**body, "digest": digest_of(body)}, sort_keys=True, indent=1).encode()


def parse_savepoint(text: bytes, name: str) -> Savepoint:
    """Read `_metadata`. `name` says in errors what was read.

    Raises InvalidInputError for what is no savepoint, was changed, or has another version.
    """
    try:
        body = parse_json(text)
    except ValueError as error:
        message = f"{name} is no metadata of a savepoint: {error}"
        raise InvalidInputError(message) from error
    if not isinstance(body, dict) or "version" not in body:
        message = f"{name} is no metadata of a savepoint: it has no version"
        raise InvalidInputError(message)
    if body["version"] != SAVEPOINT_VERSION:
        message = (
            f"{name} has version {str(body['version'])[:20]!r} of the form, written by {_writer_of(body)}, and "
            f"this one reads version {SAVEPOINT_VERSION}: restore it with the version that wrote it"
        )
        raise InvalidInputError(message)
    digest = body.pop("digest", None)
    if digest != digest_of(body):
        message = f"{name} was changed after it was written: its digest is another one"
        raise InvalidInputError(message)
    try:
        savepoint = Savepoint.model_validate_json(json.dumps(body))
    except (ValidationError, ValueError) as error:
        message = f"{name} is no metadata of a savepoint: {_problems(error)}"
        raise InvalidInputError(message) from error
    if len({one.directory for one in savepoint.queries}) != len(savepoint.queries):
        message = f"{name} names a query twice"
        raise InvalidInputError(message)
    return savepoint


def digest_of(body: dict[str, Any]) -> str:
    """Over all of `_metadata` but the digest itself."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _writer_of(body: dict[str, Any]) -> str:
    return str(body.get("software_version", "an unknown version"))[:40]


def _problems(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)
