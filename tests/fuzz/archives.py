"""Archives and wheels of jobs, of every kind that is unpacked: nothing is written outside of its directory (R42)."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from runtime.common.errors import InvalidInputError
from runtime.taskexecutor.unpacking.archive import unpack
from runtime.taskexecutor.unpacking.limits import Budget, UnpackLimits
from tests.fuzz.surface import MIB, Surface

_KINDS = ("tar", "tar.gz", "tar.bz2", "tar.xz", "tar.zst", "zip", "whl")
_LIMITS = UnpackLimits(bytes_max=4 * MIB, entries_max=200)


def _begin() -> Callable[[bytes], object]:
    home = Path(tempfile.mkdtemp(prefix="fuzz-archives."))
    archive, root = home / "archive", home / "inner" / "root"
    root.parent.mkdir()

    def feed(data: bytes) -> object:
        kind = _KINDS[data[0] % len(_KINDS)] if data else _KINDS[0]
        archive.write_bytes(data[1:])
        try:
            unpack(archive, f"a.{kind}", root, Budget(_LIMITS), is_wheel=kind == "whl")
            return f"{kind}, {len(list(root.rglob('*')))} entries"
        finally:
            outside = {*home.rglob("*")} - {archive, root.parent, root, *root.rglob("*")}
            assert not outside, outside
            for path in root.rglob("*"):
                led = path.resolve()
                assert not path.is_symlink() or led.is_relative_to(root.resolve()), f"{path} leads to {led}"
            shutil.rmtree(root, ignore_errors=True)

    return feed


def _tar(*, pax: bool) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT if pax else tarfile.GNU_FORMAT) as tar:
        for name in ("directory/", "directory/file", "n" * 120, "é"):
            member = tarfile.TarInfo(name)
            member.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            member.size = 0 if name.endswith("/") else 7
            tar.addfile(member, io.BytesIO(b"content"))
        for name, kind, target in (("soft", tarfile.SYMTYPE, "directory/file"), ("hard", tarfile.LNKTYPE, "é")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            tar.addfile(member)
    return packed.getvalue()


def _zip(*names: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            file.writestr(name, b"" if name.endswith("/") else b"content")
    return packed.getvalue()


def _zstd(data: bytes) -> bytes:
    import pyarrow as pa

    return bytes(pa.compress(data, codec="zstd", asbytes=True))


def _seeds() -> Sequence[bytes]:
    pack: tuple[Callable[[bytes], bytes], ...] = (bytes, gzip.compress, bz2.compress, lzma.compress, _zstd)
    tars = [bytes([number]) + packed(_tar(pax=pax)) for pax in (True, False) for number, packed in enumerate(pack)]
    zips = [
        b"\x05" + _zip("directory/", "directory/file", "other"),
        b"\x06" + _zip("package/x.py", "x-1.data/purelib/y"),
    ]
    return [*tars, *zips]


SURFACES = (
    Surface(
        "archives",
        _begin,
        _seeds,
        (InvalidInputError,),
        prefix=1,
        tokens=(
            b"../",
            b"/etc/x",
            b"\x00" * 512,
            b"\xff" * 12,
            b"7777777\x00",
            b"0" * 12,
            b"PK\x01\x02",
            b"PK\x05\x06",
        ),
        peak_bytes=128 * MIB,  # of a dictionary of xz; the process that unpacks has its own limit
        smoke_inputs=400,
    ),
)
