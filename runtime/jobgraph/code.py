"""How a JobGraph refers to user code and to the files that a job brings along.

User code is opaque here: nothing in this package imports, unpickles or runs it.
"""

from __future__ import annotations

import base64
import hashlib
import sys
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, FailFast, Field

INLINE_BYTES_MAX = 64 * 1024
"""Code and files up to this size travel inside the JobGraph, larger ones as blobs."""

PYTHON_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Minor version of this interpreter, in the form that pickled code records."""


class JobGraphModel(BaseModel):
    """Base of all parts of a JobGraph: immutable, and closed so that a misspelt field is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, ser_json_inf_nan="constants"
    )


class Artifact(JobGraphModel):
    """One file of a job. Exactly one of `key`, `inline` and `url` is set once the job is submitted.

    `name` is the file's name in the job's directory; for files and archives also, as in spark-submit, `x.zip#alias`.
    `key` is the object in the blob store, "<sha256>-<upload id>"; `inline` is base64. While both are None the file
    has not been uploaded: only the client that builds the graph has such an artifact. A file with a `url` is none of
    the client's: each task fetches it where it runs. Its content is not known before, so `sha256` is that of the URL.
    """

    name: str
    sha256: str
    size_bytes: int
    key: str | None = None
    inline: str | None = None
    url: str | None = Field(default=None, exclude_if=lambda url: url is None)

    @classmethod
    def of_url(cls, name: str, url: str) -> Artifact:
        """An artifact that tasks fetch."""
        return cls(name=name, sha256=hashlib.sha256(url.encode()).hexdigest(), size_bytes=0, url=url)

    @classmethod
    def of_bytes(cls, name: str, data: bytes) -> Artifact:
        """An artifact of these bytes: inline up to INLINE_BYTES_MAX, else pending until it is uploaded."""
        inline = base64.b64encode(data).decode("ascii") if len(data) <= INLINE_BYTES_MAX else None
        return cls(name=name, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), inline=inline)

    @property
    def is_pending(self) -> bool:
        """True until the file is inline or uploaded."""
        return self.key is None and self.inline is None and self.url is None

    def inline_bytes(self) -> bytes:
        """The content of an inline artifact, b"" for one in the blob store."""
        return b"" if self.inline is None else base64.b64decode(self.inline, validate=True)


class _Code(JobGraphModel):
    """Base of all code. A form of it that is a file of the job says so."""

    @property
    def artifact(self) -> Artifact | None:
        """The file that is this code; None for code that is no file."""
        return None

    def with_artifact(self, artifact: Artifact) -> Self:
        """The same code with another form of its file."""
        del artifact
        return self


class FunctionReference(_Code):
    """`package.module:function`, imported in the slot."""

    type: Literal["reference"] = "reference"
    target: str


class PickledCode(_Code):
    """A callable as cloudpickle bytes (base64), made by the Python minor version `python`; `sha256` is of the bytes."""

    type: Literal["pickled"] = "pickled"
    data: str
    python: str
    sha256: str

    @classmethod
    def of_bytes(cls, data: bytes) -> PickledCode:
        """Wrap pickled bytes of this interpreter."""
        return cls(
            data=base64.b64encode(data).decode("ascii"), python=PYTHON_VERSION, sha256=hashlib.sha256(data).hexdigest()
        )

    def payload(self) -> bytes:
        """The cloudpickle bytes."""
        return base64.b64decode(self.data, validate=True)


class BlobCode(_Code):
    """A callable as cloudpickle bytes that are too large for the JobGraph."""

    type: Literal["blob"] = "blob"
    blob: Artifact
    python: str

    @property
    def artifact(self) -> Artifact | None:
        """The pickled bytes."""
        return self.blob

    def with_artifact(self, artifact: Artifact) -> Self:
        """The same code, uploaded."""
        return self.model_copy(update={"blob": artifact})


class ScriptCode(_Code):
    """A whole spark-submit application, run as `__main__` with `args` as sys.argv[1:]."""

    type: Literal["script"] = "script"
    script: Artifact
    args: Annotated[tuple[str, ...], FailFast()] = ()
    builder_conf: dict[str, str] = Field(default_factory=dict, exclude_if=lambda conf: not conf)
    """Static Spark conf that the script sets itself, as far as the client has found it in its text (D-029: left out
    while there is none)."""
    starts_queries: bool = Field(default=False, exclude_if=lambda starts: not starts)
    """It was submitted as a streaming job: it starts queries that do not end (R63)."""

    @property
    def artifact(self) -> Artifact | None:
        """The script."""
        return self.script

    def with_artifact(self, artifact: Artifact) -> Self:
        """The same code, uploaded."""
        return self.model_copy(update={"script": artifact})


class JarCode(_Code):
    """A Java or Scala application: `main_class` of `jar` with `args`, in a JVM of its own. "": as the jar names it."""

    type: Literal["jar"] = "jar"
    jar: Artifact
    main_class: str = ""
    args: Annotated[tuple[str, ...], FailFast()] = ()

    @property
    def artifact(self) -> Artifact | None:
        """The jar."""
        return self.jar

    def with_artifact(self, artifact: Artifact) -> Self:
        """The same code, uploaded."""
        return self.model_copy(update={"jar": artifact})


CodeReference = Annotated[
    FunctionReference | PickledCode | BlobCode | ScriptCode | JarCode, Field(discriminator="type")
]
