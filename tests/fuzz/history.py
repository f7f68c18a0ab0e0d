"""Files of histories, which the history server reads from storage that any cluster may write (D-115)."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

from runtime.common.errors import InvalidInputError
from runtime.history.pack import ARCHIVE_BYTES_MAX, EndedJob, make_pack, read_archive, read_index
from tests.fuzz.surface import Surface
from tests.kit.history.histories import ended

_TOKENS = (b"flinklike-history 1 ", b'"jobs":[', b'"offset":', b'"archive_bytes":', b'"status":"FINISHED"', b"x\x01")


def _begin() -> Callable[[bytes], object]:
    def feed(data: bytes) -> object:
        file = io.BytesIO(data)
        index = read_index(file, len(data))
        sizes = []
        for job in index.jobs[:10]:
            if job.archive_bytes > 1 << 20:
                continue  # so much may be asked for: the bound is the surface's, which is smaller
            assert job.archive_bytes <= ARCHIVE_BYTES_MAX
            archive = read_archive(file, index.begin, job)
            assert len(archive) == job.archive_bytes
            sizes.append(len(archive))
        return sizes

    return feed


def _seeds() -> Sequence[bytes]:
    return [make_pack([ended(1)]), make_pack([ended(1), EndedJob(ended(2).summary, b""), ended(3)]), make_pack([])]


SURFACES = (Surface("history", _begin, _seeds, (InvalidInputError,), tokens=_TOKENS),)
