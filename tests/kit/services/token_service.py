"""A service outside of the cluster that issues tokens which end soon, and refuses those that have ended."""

from __future__ import annotations

import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

MARK = "issued-"
"""What every token begins with: by it they are found where they do not belong."""


class TokenService:
    """An HTTP server on loopback: `/issue` gives a new token, `/data` wants one that is good."""

    def __init__(self, lifetime: float) -> None:
        self.lifetime = lifetime
        self.issued: dict[str, float] = {}
        self.served: list[str] = []
        self.refused: list[str] = []
        self.is_issuing = True
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                code, body = service.answer(self.path, self.headers.get("authorization", ""))
                self.send_response(code)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """No test reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, path: str, token: str) -> tuple[int, bytes]:
        """Status and body."""
        now = time.time()
        if path == "/issue":
            if not self.is_issuing:
                return 503, b""
            made, end = f"{MARK}{secrets.token_hex(16)}", now + self.lifetime
            self.issued[made] = end
            return 200, json.dumps({"values": {"token": made}, "expires_at": end}).encode()
        is_good = self.issued.get(token, 0.0) > now
        (self.served if is_good else self.refused).append(token)
        return (200 if is_good else 401), b""

    def end_those_before(self, token: str) -> None:
        """What was issued earlier is good no more."""
        for other in self.issued:
            if other == token:
                return
            self.issued[other] = 0.0

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
