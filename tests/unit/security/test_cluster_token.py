"""The cluster's token: its file, its comparison, and that it never shows."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError, UnauthenticatedError
from runtime.security import private_files
from runtime.security.tokens import (
    ClusterToken,
    load_or_create_cluster_token,
    new_cluster_token,
    read_cluster_token,
)


def test_file_is_made_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "run" / "token"
    token = load_or_create_cluster_token(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_or_create_cluster_token(path) == token == read_cluster_token(path)
    assert [entry.name for entry in path.parent.iterdir()] == ["token"]


def test_everybody_who_comes_at_once_gets_the_same(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with ThreadPoolExecutor(16) as pool:
        tokens = list(pool.map(load_or_create_cluster_token, [path] * 64))
    assert len({token.reveal() for token in tokens}) == 1


def test_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        load_or_create_cluster_token(tmp_path / "token")
    finally:
        os.umask(before)
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", ["", "short", "with spaces in the middle of it", "ü" * 40, "x\n" * 40])
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(InvalidInputError, match="holds no token"):
        read_cluster_token(path)


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(new_cluster_token().reveal())
    path.chmod(0o640)
    with pytest.raises(InvalidInputError, match="chmod 600"):
        load_or_create_cluster_token(path)
    with pytest.raises(InvalidInputError, match="cannot read"):
        read_cluster_token(tmp_path / "missing")


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner of a file can read and replace it; for root the file's mode means nothing."""
    path = tmp_path / "token"
    token = new_cluster_token()
    path.write_text(token.reveal())
    path.chmod(0o600)
    owner = path.stat().st_uid
    monkeypatch.setattr(private_files, "_ROOT", owner + 2)
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    with pytest.raises(InvalidInputError, match=rf"belongs to another user \(uid {owner}\)"):
        read_cluster_token(path)
    monkeypatch.setattr(private_files, "_ROOT", owner)
    assert read_cluster_token(path).reveal() == token.reveal(), "a key that is mounted may be root's"


def test_it_never_shows() -> None:
    token = new_cluster_token()
    assert token.reveal() not in f"{token} {token!r} {[token]}"


def test_comparison() -> None:
    token = new_cluster_token()
    assert token.matches(token.reveal())
    assert token.matches(token.reveal().encode())
    for wrong in (None, "", token.reveal() + "x", "\udcff", new_cluster_token().reveal()):
        assert not token.matches(wrong)
        with pytest.raises(UnauthenticatedError):
            token.require(wrong)
    token.require(token.reveal())


def test_copies_are_equal() -> None:
    token = new_cluster_token()
    assert pickle.loads(pickle.dumps(token)) == token
    assert token != ClusterToken("x" * 20)
