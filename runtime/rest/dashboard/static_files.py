"""The files of the dashboard: modules and style, as they stand in `static/`, under a path that changes with them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).with_name("static")
_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class StaticFiles:
    """`files`: content by name. `digest` names this version of all of them, so that browsers may keep each for good."""

    files: dict[str, bytes]
    digest: str

    def media_type(self, name: str) -> str:
        """By its ending."""
        return _TYPES[Path(name).suffix]


@cache
def static_files() -> StaticFiles:
    """All files, read once."""
    files = {
        str(path.relative_to(_ROOT)): path.read_bytes() for path in sorted(_ROOT.rglob("*")) if path.suffix in _TYPES
    }
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return StaticFiles(files, digest.hexdigest()[:16])
