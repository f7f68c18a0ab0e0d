"""The first file of a multipart body, as a stream: neither the body nor the file is ever held whole."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from email.message import Message

from runtime.common.errors import InvalidInputError

_HEAD_BYTES_MAX = 16 * 1024
_FIELDS_BYTES_MAX = 64 * 1024
"""Of what stands before the file."""
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{1,70}\Z")


class FilePart:
    """Reads a body of `content_type`. After `begin` there is a `file_name`, and `chunks` gives the bytes.

    All raise InvalidInputError for a body that is none, or that ends before the file does.
    """

    def __init__(self, content_type: str, body: AsyncIterator[bytes]) -> None:
        self._delimiter = b"\r\n--" + _boundary(content_type)
        self._body = body
        # The first delimiter has no line before it.
        self._held = bytearray(b"\r\n")
        self.file_name = ""

    async def begin(self) -> None:
        """Read up to the first byte of the first part that has a file name."""
        left = _FIELDS_BYTES_MAX
        while not self.file_name:
            left -= await self._skip_part(left) + len(self._delimiter)
            head = await self._until(b"\r\n\r\n", _HEAD_BYTES_MAX)
            left -= len(head)
            if left < 0:
                message = f"the multipart body has more than {_FIELDS_BYTES_MAX} bytes of fields before its file"
                raise InvalidInputError(message)
            if head.startswith(b"--"):
                message = "the body has no file: send one as multipart/form-data, in the field jarfile"
                raise InvalidInputError(message)
            self.file_name = _file_name(head)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The bytes of the file."""
        kept = len(self._delimiter) - 1
        while (end := self._held.find(self._delimiter)) < 0:
            if len(self._held) > kept:
                ready = bytes(self._held[:-kept])
                del self._held[:-kept]
                yield ready
            await self._more()
        if end:
            yield bytes(self._held[:end])

    async def _skip_part(self, bytes_max: int) -> int:
        return len(await self._until(self._delimiter, bytes_max))

    async def _until(self, mark: bytes, bytes_max: int) -> bytes:
        """What comes before the mark; both are taken."""
        searched = 0
        while (end := self._held.find(mark, searched)) < 0:
            searched = max(0, len(self._held) - len(mark) + 1)
            # A closing delimiter is followed by nothing.
            if mark == b"\r\n\r\n" and self._held.startswith(b"--"):
                return b"--"
            if len(self._held) > bytes_max + len(mark):
                message = f"the multipart body has more than {bytes_max} bytes where a file is expected"
                raise InvalidInputError(message)
            await self._more()
        found = bytes(self._held[:end])
        del self._held[: end + len(mark)]
        return found

    async def _more(self) -> None:
        piece = await anext(self._body, None)
        if piece is None:
            message = "the multipart body ends before its file does"
            raise InvalidInputError(message)
        self._held += piece


def _boundary(content_type: str) -> bytes:
    message = Message()
    message["content-type"] = content_type
    boundary = message.get_boundary("")
    if message.get_content_type() != "multipart/form-data" or not _BOUNDARY.match(boundary):
        sentence = "send the file as multipart/form-data with a boundary, in the field jarfile"
        raise InvalidInputError(sentence)
    return boundary.encode()


def _file_name(head: bytes) -> str:
    """That of a part's head, "" for a field that is no file."""
    for line in head.split(b"\r\n"):
        name, _, value = line.decode("utf-8", "replace").partition(":")
        if name.strip().lower() == "content-disposition":
            message = Message()
            message["content-disposition"] = value.strip()
            found = message.get_filename("")
            return found or ""
    return ""
