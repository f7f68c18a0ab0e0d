"""Flink's own dashboard in front of a cluster: its static files, and everything else passed on with a token."""

from __future__ import annotations

import mimetypes
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import httpx

_PREFIX = "web/"


class FlinkDashboard:
    """Serves between `__enter__` and `__exit__`. `refused`: method, path and status where the cluster refused."""

    def __init__(self, distribution: Path, address: str, token: str) -> None:
        with zipfile.ZipFile(distribution) as jar:
            names = [name for name in jar.namelist() if name.startswith(_PREFIX) and not name.endswith("/")]
            self.files = {name.removeprefix(_PREFIX): jar.read(name) for name in names}
        self.cluster = httpx.Client(base_url=address, headers={"authorization": f"Bearer {token}"}, timeout=60)
        self.asked: set[tuple[str, str]] = set()
        self.refused: set[tuple[str, str, int]] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self.cluster.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                """The test looks at `refused`."""

            def answer(self) -> None:
                """A file, or what the cluster says."""
                name = self.path.partition("?")[0].lstrip("/") or "index.html"
                if name in site.files:
                    self._send(200, mimetypes.guess_type(name)[0] or "application/octet-stream", site.files[name])
                    return
                kept = {"content-type", "accept"}
                headers = {key: value for key, value in self.headers.items() if key.lower() in kept}
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                if "yarn-cancel" in self.path:
                    headers["x-requested-with"] = "XMLHttpRequest"
                told = site.cluster.request(self.command, self.path, headers=headers, content=body or None)
                path = self.path.partition("?")[0]
                site.asked.add((self.command, path))
                if told.status_code >= 400:
                    site.refused.add((self.command, path, told.status_code))
                self._send(told.status_code, told.headers.get("content-type", ""), told.content)

            def _send(self, status: int, kind: str, content: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815 - names of the library

        return Handler
