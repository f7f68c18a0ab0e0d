"""Files of a history: what is written is read, what is damaged, half-written or a lie is refused with a sentence."""

from __future__ import annotations

import io
import json
import zlib
from dataclasses import replace

import pytest

from runtime.common.errors import InvalidInputError
from runtime.common.states import JobStatus
from runtime.history import pack
from runtime.history.pack import EndedJob, make_pack, read_archive, read_index
from tests.kit.history.histories import ended

JOBS = (ended(1), ended(2, JobStatus.FAILED), EndedJob(ended(3).summary, b""))


def read(data: bytes) -> pack.PackIndex:
    return read_index(io.BytesIO(data), len(data))


def test_what_is_written_is_read() -> None:
    data = make_pack(JOBS)
    index = read(data)
    assert [one.summary for one in index.jobs] == [one.summary for one in JOBS]
    assert read_archive(io.BytesIO(data), index.begin, index.jobs[0]) == JOBS[0].archive
    assert read_archive(io.BytesIO(data), index.begin, index.jobs[1]) == JOBS[1].archive
    assert index.jobs[2].archive_bytes == 0


def changed(path: str, value: object) -> bytes:
    """A file whose index says another thing of its first job."""
    head, _, rest = make_pack(JOBS).partition(b"\n")
    length = int(head.split()[-1])
    index = json.loads(rest[:length])
    place = index["jobs"][0]
    *names, last = path.split(".")
    for name in names:
        place = place[name]
    place[last] = value
    text = json.dumps(index).encode()
    return b"flinklike-history 1 %d\n" % len(text) + text + rest[length:]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "does not begin as a file"),
        (b"PAR1" * 20, "does not begin as a file"),
        (b"flinklike-history 2 10\n", "does not begin as a file"),
        (b"flinklike-history 1 99999999\n{}", "its index is said to have 99999999 bytes"),
        (b"flinklike-history 1 500\n{}", "its index is said to have 500 bytes, and the file has"),
        (make_pack(JOBS)[:400], "its index is said to have"),
        (make_pack(JOBS)[:-10], "lie outside of the file"),
        (b"flinklike-history 1 2\n[]", "its index cannot be read"),
        (b"flinklike-history 1 100000\n" + b"[" * 100_000, "its index cannot be read"),
        (changed("offset", -1), "lie outside of the file"),
        (changed("offset", 1 << 40), "lie outside of the file"),
        (changed("size_bytes", 1 << 70), "lie outside of the file"),
        (changed("size_bytes", "many"), "its index cannot be read"),
        (changed("archive_bytes", 1 << 40), "out of bounds"),
        (changed("archive_bytes", 1), "out of bounds"),
        (changed("summary.job_id", "../../etc/passwd"), "is not a job id"),
        (changed("summary.status", "RUNNING"), "has not ended"),
        (changed("summary.name", "n" * 2001), "out of bounds"),
        (changed("summary.end_millis", 1 << 60), "out of bounds"),
        (changed("summary.start_millis", -5), "out of bounds"),
    ],
)
def test_what_cannot_be_is_refused(data: bytes, sentence: str) -> None:  # R52
    with pytest.raises(InvalidInputError, match=sentence):
        read(data)


def test_an_index_of_too_many_jobs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_pack(JOBS)
    monkeypatch.setattr(pack, "JOBS_MAX", 2)
    with pytest.raises(InvalidInputError, match="more than 2"):
        read(data)
    with pytest.raises(InvalidInputError, match="do not fit"):
        make_pack(JOBS)


@pytest.mark.parametrize("place", [-1, -30, -200])
def test_a_damaged_archive_is_refused(place: int) -> None:
    data = bytearray(make_pack(JOBS[:1]))
    data[place] ^= 0xFF
    index = read(bytes(data))
    with pytest.raises(InvalidInputError, match="damaged"):
        read_archive(io.BytesIO(data), index.begin, index.jobs[0])


def test_an_archive_that_unpacks_to_more_than_it_says_is_not_unpacked() -> None:  # R52
    bomb = zlib.compress(b"\0" * (64 << 20))
    job = pack.IndexedJob(ended().summary, 0, len(bomb), 1000)
    with pytest.raises(InvalidInputError, match="another size"):
        read_archive(io.BytesIO(bomb), 0, job)


def test_an_archive_above_the_bound_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "ARCHIVE_BYTES_MAX", 100)
    with pytest.raises(InvalidInputError, match="a history takes 100"):
        make_pack([replace(ended(), archive=b"x" * 101)])
