"""Files that a URL names: fetched whole or not at all, and what is told when they cannot be."""

from __future__ import annotations

import contextlib
import io
import socket
import ssl
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn

import fsspec
import pytest

from runtime.taskexecutor.slot_process import fetching, paced_http
from runtime.taskexecutor.slot_process.causes import FileUnavailableError, RemoteFileError, UnusableCodeError
from runtime.taskexecutor.slot_process.fetching import fetch, fetch_all, shown
from runtime.taskexecutor.slot_protocol.wire import RemoteFile
from tests.kit.services.certificates import CertificateAuthority

CONTENT = b"rows" * 400_000
_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "heads": (b"", b"HTTP/1.1 100 Continue\r\nX: " + b"a" * 2000 + b"\r\n\r\n"),
    "trailers": (_CHUNKED + b"5\r\nprint\r\n0\r\n", b"X: " + b"a" * 2000 + b"\r\n"),
    "sizes": (_CHUNKED, b"1;" + b"a" * 2000 + b"\r\nx\r\n"),
    "redirect": (b"HTTP/1.1 302 Found\r\nLocation: /data\r\n\r\n", b"a" * 65536),
}
"""What an answer begins with, and goes on with for ever."""
TARGETS = {
    "to-ftp": "ftp://127.0.0.1/x.py",
    "to-file": "file:///etc/passwd",
    "to-s3": "s3://bucket/x.py?X-Amz-Signature=SECRET",
    "to-user": "http://name:SECRET@127.0.0.1/ok.py",
    "to-port": "http://127.0.0.1:none/ok.py?sig=SECRET",
    "to-data": "/data?sig=SECRET",
    "to-itself": "/to-itself",
}


class Handler(BaseHTTPRequestHandler):
    """/data: the content; /env.zip: an archive; /bad.zip: none; /half: an answer that breaks off; else that status.

    /slow-head, /slow-body and the keys of ENDLESS go on until the client has enough; /to-... leads there.
    """

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].strip("/")
        if path.startswith("slow"):
            self._drip(b"" if path == "slow-head" else b"HTTP/1.0 200 OK\r\n\r\n", b"x", pause=0.02)
            return
        if path in ENDLESS:
            self._drip(*ENDLESS[path], pause=0)
            return
        if path.startswith("to-"):
            self.send_response(302)
            self.send_header("Location", TARGETS[path])
            self.end_headers()
            return
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as packed:
            packed.writestr("lib/one.py", "x = 1")
        bodies = {"data": CONTENT, "env.zip": archive.getvalue(), "bad.zip": b"PK??", "half": CONTENT}
        self.send_response(200 if path in bodies else int(path))
        body = bodies.get(path, b"")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if path == "half" else body)

    def _drip(self, head: bytes, more: bytes, *, pause: float) -> None:
        with contextlib.suppress(OSError):
            self.wfile.write(head)
            while True:
                self.wfile.write(more)
                threading.Event().wait(pause)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base has it
        """Nothing."""


@contextlib.contextmanager
def serving(made: ThreadingHTTPServer) -> Iterator[int]:
    made.daemon_threads = True  # their clients have left
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    try:
        yield made.server_port
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        yield f"http://127.0.0.1:{port}"


def no_spark() -> NoReturn:
    message = "Spark is not needed for that"
    raise AssertionError(message)


def test_http_is_read_without_spark(server: str, tmp_path: Path) -> None:
    fetch(f"{server}/data", tmp_path / "data", no_spark)
    assert (tmp_path / "data").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_an_archive_is_unpacked_and_not_fetched_again(server: str, tmp_path: Path) -> None:
    file = RemoteFile(f"{server}/env.zip", str(tmp_path / "env"), is_archive=True)
    fetch_all([file], no_spark)
    assert (tmp_path / "env" / "lib" / "one.py").read_text() == "x = 1"
    (tmp_path / "env" / "own").touch()
    fetch_all([file], no_spark)
    assert (tmp_path / "env" / "own").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["env"]


def test_a_file_of_the_host_is_linked(tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("1")
    fetch(f"local://{tmp_path}/there.csv", tmp_path / "here.csv", no_spark)
    fetch(f"local:{tmp_path}/there.csv", tmp_path / "too.csv", no_spark)
    fetch(f"local:{tmp_path}/there.csv", tmp_path / "too.csv", no_spark)
    assert (tmp_path / "here.csv").read_text() == (tmp_path / "too.csv").read_text() == "1"
    with pytest.raises(RemoteFileError, match="local:/no/such does not exist on this TaskManager's host"):
        fetch("local:///no/such", tmp_path / "no", no_spark)


def test_other_schemes_are_read_by_fsspec(tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe_file("/bucket/data", CONTENT)
    fetch("memory://bucket/data", tmp_path / "data", no_spark)
    assert (tmp_path / "data").read_bytes() == CONTENT
    with pytest.raises(RemoteFileError, match="memory://bucket/none does not exist, as seen from this TaskManager"):
        fetch("memory://bucket/none", tmp_path / "none", no_spark)


@pytest.mark.parametrize(
    ("path", "error", "told"),
    [
        ("404", RemoteFileError, "/404 does not exist, as seen from this TaskManager"),
        ("403", RemoteFileError, "/403 is answered with 403 Forbidden"),
        ("429", FileUnavailableError, "/429 is answered with 429 Too Many Requests"),
        ("503", FileUnavailableError, "/503 is answered with 503 Service Unavailable"),
        ("204", RemoteFileError, "/204 is answered with 204 No Content"),
        ("206", RemoteFileError, "/206 is answered with 206 Partial Content"),
        (
            "to-ftp",
            RemoteFileError,
            "/to-ftp is not fetched: it leads to an address of ftp:, and only http: and https:",
        ),
        ("to-file", RemoteFileError, "/to-file is not fetched: it leads to an address of file:"),
        ("to-s3", RemoteFileError, "/to-s3 is not fetched: it leads to an address of s3:"),
        ("to-user", RemoteFileError, "/to-user is not fetched: it leads to an address with a user"),
        ("to-port", RemoteFileError, "/to-port is no address that can be asked"),
        ("to-itself", RemoteFileError, "/to-itself is answered with 302"),
        ("half", FileUnavailableError, "/half cannot be fetched now: IncompleteRead"),
    ],
)
def test_what_cannot_be_had_is_one_sentence(
    server: str, tmp_path: Path, path: str, error: type[Exception], told: str
) -> None:
    with pytest.raises(error) as raised:
        fetch(f"{server}/{path}", tmp_path / "data", no_spark)
    assert told in str(raised.value)
    assert "SECRET" not in str(raised.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["to-data", "redirect"])
def test_a_redirect_is_followed_whatever_comes_with_it(server: str, tmp_path: Path, path: str) -> None:
    fetch(f"{server}/{path}", tmp_path / "data", no_spark)
    assert (tmp_path / "data").read_bytes() == CONTENT


@pytest.mark.parametrize("path", sorted(ENDLESS.keys() - {"redirect"}))
def test_what_is_no_part_of_the_file_ends(server: str, tmp_path: Path, path: str) -> None:
    with pytest.raises(
        FileUnavailableError, match=rf"/{path} cannot be fetched now: \d+ bytes have come, of which \d+ are "
    ):
        fetch(f"{server}/{path}", tmp_path / "data", no_spark)


class Source(io.RawIOBase):
    """Each read takes some seconds, of a clock that only this moves."""

    def __init__(self, piece: int, seconds: float) -> None:
        self.piece, self.seconds, self.now = piece, seconds, 0.0

    def readinto(self, buffer: Any) -> int:
        self.now += self.seconds
        return min(self.piece, len(buffer))


@pytest.mark.parametrize(("seconds", "comes"), [(0.9, True), (1.1, False)])
def test_what_has_come_gives_time_for_the_rest(monkeypatch: pytest.MonkeyPatch, seconds: float, *, comes: bool) -> None:
    source = Source(paced_http.BYTES_PER_SECOND_MIN, seconds)
    monkeypatch.setattr("time.monotonic", lambda: source.now)
    with socket.socket() as connection:
        stream = paced_http._PacedStream(source, connection)
        patience = pytest.raises(TimeoutError) if not comes else contextlib.nullcontext()
        with patience:
            for _ in range(1000):
                stream.body_bytes += len(stream.read(1 << 20) or b"")


def test_answers_over_tls_are_paced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = CertificateAuthority(tmp_path)
    shown = authority.issue("storage")
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(shown.cert, shown.key)
    made.socket = tls.wrap_socket(made.socket, server_side=True)
    monkeypatch.setattr(paced_http, "GRACE_SECONDS", 0.5)
    with serving(made) as port:
        with pytest.raises(FileUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            fetch(f"https://127.0.0.1:{port}/data", tmp_path / "data", no_spark)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))
        fetch(f"https://127.0.0.1:{port}/data", tmp_path / "data", no_spark)
        with pytest.raises(FileUnavailableError, match="it comes too slowly"):
            fetch(f"https://127.0.0.1:{port}/slow-body", tmp_path / "slow", no_spark)
    assert (tmp_path / "data").read_bytes() == CONTENT


def test_a_port_without_a_server_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(RemoteFileError, match=r"http://127\.0\.0\.1:9/x cannot be fetched, as nobody .*refused"):
        fetch("http://127.0.0.1:9/x", tmp_path / "x", no_spark)


@pytest.mark.parametrize(
    ("number", "error"), [(socket.EAI_NONAME, RemoteFileError), (socket.EAI_AGAIN, FileUnavailableError)]
)
def test_a_name_that_does_not_exist_is_told_at_once_and_a_silent_resolver_may_answer_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    def resolve(*_: object, **_more: object) -> NoReturn:
        raise socket.gaierror(number, "what the resolver says")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(error, match=r"http://nowhere/x cannot be fetched.*what the resolver says"):
        fetch("http://nowhere/x", tmp_path / "x", no_spark)


class AsksTwoAddresses(fsspec.AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A driver that goes on to another address after one that refuses."""

    protocol = "two"

    def open(self, path: str, mode: str = "rb", **_: object) -> NoReturn:
        try:
            raise ConnectionRefusedError(path)
        except OSError:
            raise TimeoutError(mode) from None


def test_a_storage_that_answers_too_late_may_answer_later(tmp_path: Path) -> None:
    """Whatever its driver has tried before: only the last is the reason."""
    fsspec.register_implementation("two", AsksTwoAddresses, clobber=True)
    with pytest.raises(FileUnavailableError, match="two://bucket/x cannot be fetched now"):
        fetch("two://bucket/x", tmp_path / "x", no_spark)


@pytest.mark.parametrize("path", ["slow-head", "slow-body"])
def test_a_server_that_drips_is_left(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(paced_http, "GRACE_SECONDS", 0.5)
    with pytest.raises(FileUnavailableError, match=f"/{path} cannot be fetched now: it comes too slowly"):
        fetch(f"{server}/{path}", tmp_path / "data", no_spark)
    assert not list(tmp_path.iterdir())


def test_a_damaged_archive_leaves_nothing(server: str, tmp_path: Path) -> None:
    with pytest.raises(UnusableCodeError, match=r"archive bad\.zip cannot be unpacked"):
        fetch_all([RemoteFile(f"{server}/bad.zip", str(tmp_path / "bad"), is_archive=True)], no_spark)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://me:secret@host/a?X-Signature=1", "https://host/a"),
        ("s3://bucket/a/b.py", "s3://bucket/a/b.py"),
        ("hdfs:/a/b", "hdfs:///a/b"),
    ],
)
def test_no_message_shows_what_signs_a_url(url: str, text: str) -> None:
    assert shown(url) == text


def test_names_of_any_length_and_alphabet_are_fetched(server: str, tmp_path: Path) -> None:
    target = tmp_path / ("n" * 250 + ".csv")
    fetch(f"{server}/data?größe=1", target, no_spark)
    assert target.stat().st_size == len(CONTENT)


def test_a_host_that_can_be_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(RemoteFileError, match=r"http://a\.\.b/x is no address that can be asked"):
        fetch("http://a..b/x", tmp_path / "x", no_spark)


def test_a_file_without_end_is_bounded(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_BYTES_MAX", len(CONTENT) - 1)
    with pytest.raises(RemoteFileError, match="/data is larger than"):
        fetch(f"{server}/data", tmp_path / "data", no_spark)
    assert not list(tmp_path.iterdir())
