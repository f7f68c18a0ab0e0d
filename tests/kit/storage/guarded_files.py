"""A file system that opens with the current key only: `guarded:///path` is the local path."""

from __future__ import annotations

from pathlib import Path

_MODULE = '''
from pathlib import Path

from fsspec.implementations.local import LocalFileSystem

KEY = Path(__file__).with_name("key")


class GuardedFileSystem(LocalFileSystem):
    """Each use looks at the key."""

    protocol = ("guarded",)

    def __init__(self, secret="", **more):
        super().__init__(**more)
        self.secret = secret
        self._check()

    def _check(self):
        if self.secret != KEY.read_text():
            raise PermissionError(f"{self.secret[:3]!r}... is not the key of this storage")

    @classmethod
    def _strip_protocol(cls, path):
        return str(super()._strip_protocol(str(path).removeprefix("guarded://")))

    def _open(self, path, *arguments, **options):
        self._check()
        return super()._open(path, *arguments, **options)

    def ls(self, path, detail=False, **options):
        self._check()
        return super().ls(path, detail=detail, **options)

    def cp_file(self, path1, path2, **options):
        self._check()
        super().cp_file(path1, path2, **options)

    def rm_file(self, path):
        self._check()
        super().rm_file(path)
'''


def install(folder: Path) -> str:
    """What PYTHONPATH has to have, for fsspec of every process to know it."""
    described = folder / "guarded_files_plugin-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: guarded-files-plugin\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[fsspec.specs]\nguarded = guarded_files_plugin:GuardedFileSystem\n")
    (folder / "guarded_files_plugin.py").write_text(_MODULE)
    return str(folder)


def give_out(folder: Path, key: str) -> None:
    """From now on the storage opens for this one only."""
    draft = folder / "key.new"
    draft.write_text(key)
    draft.replace(folder / "key")
