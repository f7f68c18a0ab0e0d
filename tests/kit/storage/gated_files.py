"""A file system without a rename, whose copies and deletions wait for a file that the test controls.

`gated:///path` is the local path. With a file `<base>.hold-copy` beside the base that says N, a copy waits when N are
visible there; with `<base>.refuse-copy` it is refused then, for good. With `<base>.hold-delete` each deletion of an
attempt's file waits, with `<base>.hold-remove` each of a file that is visible. A mover that waits notes its process in
`<base>.waiting`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

PROTOCOL = "gated"
ENTRY_POINT = f"[fsspec.specs]\n{PROTOCOL} = tests.kit.storage.gated_files:GatedFileSystem\n"


def install(folder: Path) -> str:
    """What PYTHONPATH has to have, for fsspec of every process to know it."""
    described = folder / "gated-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "entry_points.txt").write_text(ENTRY_POINT)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: gated\nVersion: 1.0\n")
    return str(folder)


def visible(base: Path) -> list[str]:
    """What readers see."""
    return sorted(path.name for path in base.glob("*") if path.name[0] not in "._") if base.exists() else []


def waiting(base: Path) -> set[int]:
    """The processes that have waited at the gate."""
    noted = Path(f"{base}.waiting")
    return {int(line) for line in noted.read_text().split()} if noted.exists() else set()


class GatedFileSystem(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Copies one file after the other has been let through."""

    protocol = (PROTOCOL,)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(str(path).removeprefix(f"{PROTOCOL}://")))

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        """Copy, when the gate lets it through."""
        base = Path(self._strip_protocol(path2)).parent
        hold = Path(f"{base}.hold-copy")
        while hold.exists() and len(visible(base)) >= int(hold.read_text() or 0):
            _wait(base)
        refuse = Path(f"{base}.refuse-copy")
        if refuse.exists() and len(visible(base)) >= int(refuse.read_text() or 0):
            message = f"no more files in {base}"
            raise PermissionError(message)
        super().cp_file(path1, path2, **options)

    def rm_file(self, path: str) -> None:
        """Delete, when the gate lets it through."""
        stripped = Path(self._strip_protocol(path))
        base = stripped.parent.parent
        while stripped.parent.name.startswith(".attempt-") and Path(f"{base}.hold-delete").exists():
            _wait(base)
        while stripped.name[0] not in "._" and Path(f"{stripped.parent}.hold-remove").exists():
            _wait(stripped.parent)
        super().rm_file(path)

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        """One file after the other, then the directories."""
        del maxdepth
        root = Path(self._strip_protocol(path))
        if not recursive or root.is_file():
            self.rm_file(path)
            return
        if not root.exists():
            raise FileNotFoundError(path)
        for parent, _, names in os.walk(root, topdown=False):
            for name in names:
                self.rm_file(f"{parent}/{name}")
            Path(parent).rmdir()

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        """There is none."""
        del options
        message = f"no rename of {path1} to {path2}: this storage has none"
        raise NotImplementedError(message)


def _wait(base: Path) -> None:
    if os.getpid() not in waiting(base):
        with Path(f"{base}.waiting").open("a") as noted:
            noted.write(f"{os.getpid()}\n")
    time.sleep(0.02)
