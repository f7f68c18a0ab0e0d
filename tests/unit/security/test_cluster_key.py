"""The cluster's key: its file, what is derived from it, and that it never shows."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError
from runtime.security.cluster_key import ClusterKey, load_or_create_cluster_key, read_cluster_key

KEY = ClusterKey(bytes(range(32)))


def test_everybody_who_comes_at_once_gets_the_same_private_file(tmp_path: Path) -> None:
    path = tmp_path / "run" / "cluster-key"
    with ThreadPoolExecutor(16) as pool:
        keys = set(pool.map(load_or_create_cluster_key, [path] * 64))
    assert keys == {read_cluster_key(path)}
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["cluster-key"]
    assert load_or_create_cluster_key(tmp_path / "another") not in keys


@pytest.mark.parametrize("content", ["", "ab", "g" * 64, "a" * 63, "a" * 66, "a" * 64 + "\n" + "b"])
def test_a_file_without_a_key_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "cluster-key"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(InvalidInputError, match="64 hex digits"):
        load_or_create_cluster_key(path)


def test_a_file_that_others_may_read_or_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster-key"
    with pytest.raises(InvalidInputError, match="cannot read the cluster key file"):
        read_cluster_key(path)
    load_or_create_cluster_key(path)
    path.chmod(0o640)
    with pytest.raises(InvalidInputError, match="chmod 600"):
        load_or_create_cluster_key(path)
    path.unlink()
    os.mkfifo(path, 0o600)  # which would keep whoever opens it waiting
    with pytest.raises(InvalidInputError, match="is no regular file"):
        read_cluster_key(path)


def test_each_purpose_has_a_key_of_its_own() -> None:
    assert KEY.derived("a") == ClusterKey(bytes(range(32))).derived("a")
    assert len({KEY.derived("a"), KEY.derived("b"), ClusterKey(bytes(32)).derived("a")}) == 3


def test_it_never_shows() -> None:
    assert repr(KEY) == str(KEY) == "ClusterKey(***)"
