"""Log files of the cluster's processes, as a client reads them piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from airflow_flinklike.client.protocol import Operation, Pause, Request, ask
from airflow_flinklike.client.sync import FlinklikeClient

PIECE_BYTES_MAX = 1 << 20
OFFSET_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ProcessPath:
    """Where REST shows a process: `/jobmanager`, `/taskmanagers/ID`, `/jobmasters/ID`."""

    text: str

    @classmethod
    def of(cls, kind: str, process_id: str) -> ProcessPath:
        """`kind` is jobmanager, jobmaster or taskmanager; the JobManager has no id here."""
        return cls(f"/{kind}" if not process_id else f"/{kind}s/{quote(process_id, safe='')}")

    def file(self, name: str) -> str:
        """The path of one log file, by default of the log."""
        return f"{self.text}/logs/{quote(name, safe='')}" if name else f"{self.text}/log"


@dataclass(frozen=True, slots=True)
class ProcessLogPiece:
    """`is_restarted`: the file was moved aside or cut since the last piece, and `data` is the beginning of it now."""

    data: bytes
    next_offset: int
    size_bytes: int
    is_restarted: bool


def piece(path: str, offset: int, limit: int = PIECE_BYTES_MAX) -> Operation[ProcessLogPiece]:
    """At most `limit` bytes of the log file that REST shows at `path`; a negative offset counts from the end."""
    response = yield from ask(Request("GET", path, {"offset": str(offset), "limit": str(limit)}))
    headers = response.headers
    next_offset, size = int(headers["x-next-offset"]), int(headers["x-size"])
    if not (len(response.body) <= next_offset <= OFFSET_MAX and 0 <= size <= OFFSET_MAX):
        message = f"a piece of a log that ends at {next_offset}, and has {len(response.body)} bytes"
        raise ValueError(message)
    return ProcessLogPiece(response.body, next_offset, size, headers.get("x-restarted") == "true")


def pause(seconds: float) -> Operation[None]:
    """Wait before the next look at a file that is followed."""
    yield Pause(seconds)


def pieces(client: FlinklikeClient, path: str, offset: int) -> Iterator[ProcessLogPiece]:
    """What there is of the file from `offset`, up to its end as the last piece has seen it."""
    while True:
        found = client.run(piece(path, offset))
        yield found
        offset = found.next_offset
        if offset >= found.size_bytes or not found.data:
            return
