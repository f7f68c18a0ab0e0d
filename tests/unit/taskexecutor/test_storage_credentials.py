"""R51: fsspec opens file systems with the newest delegation tokens that are meant for it, for any caller with a URL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import fsspec.config
import pytest
from fsspec.implementations.local import LocalFileSystem

from runtime.gateways.delegation_tokens import DelegationToken
from runtime.taskexecutor.credentials.delegation_tokens import DelegationTokenReceiverRepository
from runtime.taskexecutor.credentials.storage_credentials import StorageCredentials
from runtime.taskexecutor.storage.directory_tree import remote_files


class LakeFileSystem(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Knows with what it was opened."""

    protocol = ("lake",)

    def __init__(self, secret: str = "", region: str = "", **more: Any) -> None:
        super().__init__(**more)
        self.opened_with = (secret, region)


@pytest.fixture(autouse=True)
def _lake() -> Iterator[None]:
    fsspec.register_implementation("lake", LakeFileSystem, clobber=True)
    yield
    fsspec.config.conf.pop("lake", None)


def token(**values: str) -> DelegationToken:
    return DelegationToken("store", json.dumps(values).encode(), 0)


def opened() -> tuple[str, str]:
    """As the exchange and the mover of outputs open it."""
    found: tuple[str, str] = remote_files("lake://bucket/path").opened_with
    return found


def test_a_task_manager_opens_storage_with_the_newest(tmp_path: Path) -> None:
    repository = DelegationTokenReceiverRepository(tmp_path, {})
    assert opened() == ("", "")
    repository.take([token(**{"fsspec.lake.secret": "first", "token": "for tasks"})])
    assert opened() == ("first", "")
    first = remote_files("lake://bucket/path")
    repository.take([token(**{"fsspec.lake.secret": "second"})])
    assert opened() == ("second", "")
    assert first.opened_with == ("first", ""), "who uses one goes on"
    assert first not in LakeFileSystem._cache.values()


def test_what_was_configured_and_what_is_said_counts_too(tmp_path: Path) -> None:
    fsspec.config.conf["lake"] = {"region": "north", "secret": "old"}
    DelegationTokenReceiverRepository(tmp_path, {}).take([token(**{"fsspec.lake.secret": "new"})])
    assert opened() == ("new", "north")
    assert fsspec.filesystem("lake", secret="own").opened_with == ("own", "north")


def test_a_slot_sees_what_comes_later(tmp_path: Path) -> None:
    """Its process is another one than who takes the tokens."""
    task_manager = DelegationTokenReceiverRepository(tmp_path, {})
    task_manager.take([token(**{"fsspec.lake.secret": "first"})])
    fsspec.config.conf.pop("lake")
    slot = StorageCredentials.of_directory(tmp_path)
    slot.install()
    slot.install()
    assert opened() == ("first", "")
    draft = tmp_path / "store.new"
    draft.write_text(json.dumps({"values": {"fsspec.lake.secret": "second"}}))
    draft.replace(tmp_path / "store.json")
    assert opened() == ("second", "")


def test_without_any_nothing_is_touched(tmp_path: Path) -> None:
    before = dict(fsspec.config.conf)
    StorageCredentials.of_directory(tmp_path / "gone").install()
    StorageCredentials.of_environment({}).install()
    DelegationTokenReceiverRepository(tmp_path, {}).take([token(token="x")])
    assert fsspec.config.conf == before
