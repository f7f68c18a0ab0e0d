"""R44: the file of a Spark cluster's secret."""

import os
from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError
from runtime.taskexecutor.spark_protocol.secret_file import read_secret

SECRET = b"0123456789abcdef"


def written(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("content", [SECRET, SECRET + b"\n", b" " + SECRET + b"\r\n"])
def test_what_is_blank_around_it_is_not_the_secret(tmp_path: Path, content: bytes) -> None:
    assert read_secret(written(tmp_path / "secret", content)) == SECRET.decode()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_what_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(InvalidInputError, match="chmod 600"):
        read_secret(written(tmp_path / "secret", SECRET, mode))


@pytest.mark.parametrize(
    "content", [b"", SECRET[1:], b"a" * 2000, SECRET + b"\nmore", SECRET + b"\0", b"\xc3\xa4" * 16]
)
def test_what_is_no_secret_is_refused_without_showing_it(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InvalidInputError, match="16 to 1024 printable") as refused:
        read_secret(written(tmp_path / "secret", content))
    assert "abcdef" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"taskmanager.spark.secret-file file .*/none: No such file"):
        read_secret(tmp_path / "none")
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(InvalidInputError, match=r"taskmanager.spark.secret-file file .*/fifo is no regular file"):
        read_secret(tmp_path / "fifo")
