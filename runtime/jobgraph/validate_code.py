"""Checks of code references and of files that a job brings along."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator
from urllib.parse import unquote

from runtime.jobgraph.code import (
    INLINE_BYTES_MAX,
    Artifact,
    BlobCode,
    CodeReference,
    FunctionReference,
    JarCode,
    PickledCode,
    ScriptCode,
)

FILE_NAME_BYTES_MAX = 255

_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
_CLASS = re.compile(r"[^\W\d][\w$]*(\.[^\W\d][\w$]*)*\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}:[^\s\x00-\x20\x7f]+\Z")
_URL_LENGTH_MAX = 4096
_ARGUMENT_BYTES_MAX = 128 * 1024 - 1
_ARGUMENTS_BYTES_MAX = 1 << 20
"""Linux takes 128 KiB for one, and at least 2 MiB for all with the environment."""
_UPLOAD_ID = re.compile(r"[0-9A-Za-z_.]{1,64}\Z")


def code_problems(code: CodeReference, python: str | None) -> Iterator[str]:
    """Problems of one operator's code; `python` is the minor version that will run it, None skips that."""
    match code:
        case FunctionReference():
            if len(code.target) > 512 or not _TARGET.match(code.target):
                yield f"{code.target[:80]!r} is not a reference: expected 'package.module:function'"
        case PickledCode():
            yield from _content_problems("code", code.data, code.sha256, None)
            yield from _python_problems(code.python, python)
        case BlobCode():
            yield from artifact_problems("code", code.blob)
            yield from _python_problems(code.python, python)
        case ScriptCode():
            yield from artifact_problems("script", code.script)
            yield from file_name_problems("script", code.script)
            if any("\0" in argument for argument in code.args):
                yield "a script's argument holds a NUL character"
        case JarCode():
            yield from artifact_problems("jar", code.jar)
            yield from file_name_problems("jar", code.jar)
            if code.main_class and (len(code.main_class) > 512 or not _CLASS.match(code.main_class)):
                yield f"{code.main_class[:80]!r} is not the name of a class"
            if any("\0" in argument for argument in code.args):
                yield "an application's argument holds a NUL character"
            yield from _size_problems(code.args)


def _size_problems(arguments: tuple[str, ...]) -> Iterator[str]:
    """Of arguments of another program."""
    sizes = [len(argument.encode("utf-8", "surrogatepass")) for argument in arguments]
    if max(sizes, default=0) > _ARGUMENT_BYTES_MAX or sum(sizes) > _ARGUMENTS_BYTES_MAX:
        yield (
            f"arguments of an application have up to {max(sizes)} bytes, and {sum(sizes)} in all: more than "
            f"{_ARGUMENT_BYTES_MAX} and {_ARGUMENTS_BYTES_MAX}, which a program can be given: use a file"
        )


def artifact_problems(kind: str, artifact: Artifact) -> Iterator[str]:
    """Problems of a file's content and key."""
    label = f"{kind} {artifact.name[:80]!r}"
    if not _SHA256.match(artifact.sha256):
        yield f"{label}: sha256 is not 64 lower-case hex digits"
    if artifact.size_bytes < 0:
        yield f"{label}: size is {artifact.size_bytes} bytes"
    if artifact.key is not None and artifact.inline is not None:
        yield f"{label}: has both a key and inline content"
    if artifact.url is not None:
        yield from _url_problems(label, artifact, artifact.url)
    if artifact.is_pending:
        yield f"{label}: was not uploaded: it has neither a key nor inline content"
    if artifact.inline is not None:
        yield from _content_problems(label, artifact.inline, artifact.sha256, artifact.size_bytes)
    if artifact.key is not None:
        digest, _, upload = artifact.key.partition("-")
        if digest != artifact.sha256 or not _UPLOAD_ID.match(upload):
            yield f"{label}: key {artifact.key[:120]!r} is not '<its sha256>-<upload id>'"


def _url_problems(label: str, artifact: Artifact, url: str) -> Iterator[str]:
    if artifact.key is not None or artifact.inline is not None:
        yield f"{label}: has both a URL and content"
    if len(url) > _URL_LENGTH_MAX or not _URL.match(url) or any(ord(one) < 32 for one in unquote(url)):
        yield f"{label}: {url[:80]!r} is not a URL"
    if artifact != Artifact.of_url(artifact.name, url).model_copy(
        update={"key": artifact.key, "inline": artifact.inline}
    ):
        yield f"{label}: of a file with a URL the size is 0, and sha256 that of the URL"


def file_name_problems(kind: str, artifact: Artifact) -> Iterator[str]:
    """Problems of a file's name, which must not lead out of the job's directory."""
    names = artifact.name.split("#", 1) if kind in {"archive", "file"} else [artifact.name]
    for name in names:
        is_too_long = len(name.encode("utf-8", "surrogatepass")) > FILE_NAME_BYTES_MAX
        if name in {"", ".", ".."} or is_too_long or any(ord(c) < 32 or c in "/\\\x7f" for c in name):
            yield f"{kind} {artifact.name[:80]!r}: the name must be a plain file name"


def _content_problems(label: str, data: str, sha256: str, size_bytes: int | None) -> Iterator[str]:
    if len(data) > INLINE_BYTES_MAX * 4 // 3 + 4:
        yield f"{label}: inline content is above {INLINE_BYTES_MAX} bytes and must be uploaded as a blob"
        return
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        yield f"{label}: inline content is not base64"
        return
    if hashlib.sha256(content).hexdigest() != sha256:
        yield f"{label}: sha256 does not match the content"
    if size_bytes is not None and len(content) != size_bytes:
        yield f"{label}: has {len(content)} bytes, not {size_bytes}"


def _python_problems(recorded: str, python: str | None) -> Iterator[str]:
    if not re.fullmatch(r"3\.\d{1,3}", recorded):
        yield f"{recorded[:20]!r} is not a Python minor version"
    elif python is not None and recorded != python:
        yield f"code was pickled by Python {recorded} and would run on {python}: the minor versions must be equal"
