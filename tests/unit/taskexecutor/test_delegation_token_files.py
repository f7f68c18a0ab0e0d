"""What a TaskManager does with delegation tokens: files for tasks, and receivers (R51)."""

from __future__ import annotations

import asyncio
import json
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from runtime.aio.scope import Scope
from runtime.gateways.delegation_tokens import DelegationToken, ObtainedTokens
from runtime.jobgraph.task_credentials import VARIABLE, task_credentials
from runtime.taskexecutor.credentials import delegation_tokens
from runtime.taskexecutor.credentials.delegation_tokens import DelegationTokenReceiverRepository
from tests.kit.control_plane.plane import eventually

SECRET = "hush-hush"
FIRST = DelegationToken("vault", b'{"token": "hush-hush"}', 1896091200000)
NEXT = DelegationToken("vault", b'{"token": "next"}', 0)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


def test_tasks_find_the_newest(directory: Path) -> None:
    repository = DelegationTokenReceiverRepository(directory, {})
    repository.take([FIRST])
    found = task_credentials("vault")
    assert (dict(found), found.expires_at) == ({"token": SECRET}, datetime(2030, 1, 31, 12, tzinfo=UTC))
    assert repr(found) == str(found) == "Credentials(vault: token)"
    with pytest.raises(KeyError, match="'vault' have no 'password': they have token"):
        found["password"]
    repository.take([NEXT])
    assert (dict(task_credentials("vault")), task_credentials("vault").expires_at) == ({"token": "next"}, None)
    assert [(path.name, stat.S_IMODE(path.stat().st_mode)) for path in directory.iterdir()] == [("vault.json", 0o600)]
    assert SECRET not in repr(FIRST)


def test_of_those_that_are_there_the_names_are_told(directory: Path) -> None:
    DelegationTokenReceiverRepository(directory, {}).take([FIRST])
    with pytest.raises(KeyError, match="no credentials 'valut' here, only vault: "):
        task_credentials("valut")
    with pytest.raises(KeyError, match="is no name of credentials"):
        task_credentials("../vault")


def test_outside_of_a_task_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(KeyError, match="only none at all"):
        task_credentials("vault")


@pytest.mark.parametrize(
    "token",
    [
        DelegationToken("../vault", b'{"token": "hush-hush"}', 0),
        DelegationToken("vault", b"hush-hush", 0),
        DelegationToken("vault", b'{"token": 5}', 0),
    ],
)
def test_what_cannot_be_used_leaves_what_was_there(
    directory: Path, token: DelegationToken, caplog: pytest.LogCaptureFixture
) -> None:
    repository = DelegationTokenReceiverRepository(directory, {})
    repository.take([NEXT])
    repository.take([token])
    assert dict(task_credentials("vault")) == {"token": "next"}
    assert "tasks do not get the new delegation tokens of" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.asyncio
async def test_a_directory_that_takes_nothing_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A receiver needs no file, and a token may have ended before the next one comes."""
    monkeypatch.setattr(delegation_tokens, "_WRITE_AGAIN_SECONDS", 0.01)
    directory, got = tmp_path / "gone", list[ObtainedTokens]()

    class Receiver:
        def receive(self, tokens: ObtainedTokens, /) -> None:
            got.append(tokens)

    repository = DelegationTokenReceiverRepository(directory, {"vault": Receiver()})
    async with Scope("test") as scope:
        scope.spawn_eternal("receivers", repository.run())
        repository.take([FIRST])
        await eventually(lambda: got == [ObtainedTokens({"token": SECRET}, 1896091200000)])
        await asyncio.sleep(0.1)
        assert caplog.text.count("tasks do not get the new delegation tokens of vault yet") == 1
        repository.take([NEXT])
        directory.mkdir()
        await eventually((directory / "vault.json").exists, "it is written", 20.0)
        scope.cancel_all()
    monkeypatch.setenv(VARIABLE, str(directory))
    assert dict(task_credentials("vault")) == {"token": "next"}


@pytest.mark.asyncio
async def test_receivers_get_each_latest_and_may_fail(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    got: list[ObtainedTokens] = []

    class Receiver:
        def receive(self, tokens: ObtainedTokens, /) -> None:
            got.append(tokens)
            if len(got) == 1:
                raise ValueError(tokens.values["token"])

    repository = DelegationTokenReceiverRepository(directory, {"vault": Receiver()})
    async with asyncio.timeout(100), Scope("test") as scope:
        scope.spawn_eternal("receivers", repository.run())
        repository.take([FIRST])
        while len(got) < 1:
            await asyncio.sleep(0.01)
        repository.take([NEXT, DelegationToken("other", b'{"a": "b"}', 0)])
        while len(got) < 2:
            await asyncio.sleep(0.01)
        scope.cancel_all()
    assert got == [ObtainedTokens({"token": SECRET}, 1896091200000), ObtainedTokens({"token": "next"}, 0)]
    assert "the receiver of delegation tokens of vault failed: ValueError" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.asyncio
async def test_one_that_hangs_gets_the_latest_when_it_is_back(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And keeps no other one waiting."""
    monkeypatch.setattr(delegation_tokens, "_RECEIVE_SECONDS_MAX", 0.01)
    monkeypatch.setattr(delegation_tokens, "_AGAIN_SECONDS", 0.01)
    got: dict[str, list[str]] = {"hangs": [], "other": []}
    back = threading.Event()

    class Receiver:
        def __init__(self, name: str, comes_back: threading.Event | None = None) -> None:
            self._name, self._comes_back = name, comes_back

        def receive(self, tokens: ObtainedTokens, /) -> None:
            got[self._name].append(tokens.values["token"])
            if self._comes_back is not None:
                self._comes_back.wait()

    def told(name: str, value: str) -> DelegationToken:
        return DelegationToken(name, json.dumps({"token": value}).encode(), 0)

    receivers = {"hangs": Receiver("hangs", back), "other": Receiver("other")}
    repository = DelegationTokenReceiverRepository(directory, receivers)
    async with Scope("test") as scope:
        scope.spawn_eternal("receivers", repository.run())
        repository.take([told("hangs", "1"), told("other", "1")])
        await eventually(lambda: got["hangs"] == ["1"])
        repository.take([told("hangs", "2"), told("other", "2")])
        await eventually(lambda: got["other"][-1:] == ["2"])
        repository.take([told("hangs", "3")])
        said = len(caplog.records)
        await eventually(lambda: len(caplog.records) > said + 1, "it is asked again", 30.0)
        assert got["hangs"] == ["1"]
        back.set()
        await eventually(lambda: got["hangs"][-1] == "3")
        scope.cancel_all()
