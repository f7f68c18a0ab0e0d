"""The frame of every process: exit codes, sentences, the ready file, and options as settings."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError, UnavailableError
from runtime.common.ids import Incarnation
from runtime.config import log_files
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.loading import load
from runtime.config.options import jobmanager as jm
from runtime.entrypoint import job_manager_options, process_options
from runtime.entrypoint import process as process_frame
from runtime.entrypoint.process import Leaving, ProcessContext, _supervise
from runtime.entrypoint.ready import report_ready
from runtime.rpc.settings import RpcSettings
from tests.kit.control_plane.plane import eventually


def configuration(*dynamic: str) -> Configuration:
    return load(None, environment={}, dynamic=dynamic)


def context(tmp_path: Path) -> ProcessContext:
    layout = Layout(home=tmp_path, conf=tmp_path, run=tmp_path)
    return ProcessContext(configuration(), layout, {"FLINKLIKE_READY_FILE": str(tmp_path / "ready")})


class Scripted:
    """A ClusterProcess that becomes ready, or not, and then does what `error` says."""

    def __init__(self, error: Exception | None, *, is_ready: bool) -> None:
        self._error = error
        self._is_ready = is_ready

    async def run(self, given: ProcessContext) -> None:
        if self._is_ready:
            given.ready({"address": "h:1"})
        if self._error is not None:
            async with asyncio.TaskGroup() as group:
                _ = group.create_task(self._fail(self._error))
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.get_running_loop().create_future()

    @staticmethod
    async def _fail(error: Exception) -> None:
        raise error


@pytest.mark.parametrize(
    ("error", "is_ready", "code", "sentence"),
    [
        (UnavailableError("cannot reach etcd: start it"), False, 1, "cannot reach etcd: start it\n"),
        (ValueError("oops"), False, 1, "error of its own: ValueError: oops"),
        (UnavailableError("it went away"), True, 2, "jobmanager failed: it went away"),
        (None, True, 143, ""),
    ],
)
def test_exit_codes(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    error: Exception | None,
    is_ready: bool,
    code: int,
    sentence: str,
) -> None:
    process = Scripted(error, is_ready=is_ready)
    assert asyncio.run(_supervise("jobmanager", lambda: process, context(tmp_path))) == code
    assert sentence in capsys.readouterr().err
    assert (tmp_path / "ready").exists() is is_ready


class HandingOver:
    """A ClusterProcess with something to hand over, that gets these signals; `ends`: the hand-over comes to an end."""

    def __init__(self, *signals: signal.Signals, ends: bool | Exception) -> None:
        self._signals = signals
        self._ends = ends
        self.has_begun = asyncio.Event()
        self.was_cut_short = False

    async def run(self, given: ProcessContext) -> None:
        given.leaving = Leaving(self._leave, timeout=30.0)
        given.ready({"address": "h:1"})
        for number in self._signals:
            os.kill(os.getpid(), number)
            if number is signal.SIGTERM:
                await self.has_begun.wait()
        await asyncio.get_running_loop().create_future()

    async def _leave(self) -> bool:
        self.has_begun.set()
        if isinstance(self._ends, Exception):
            raise self._ends
        try:
            await asyncio.sleep(0 if self._ends else 1000)
        except asyncio.CancelledError:
            self.was_cut_short = True
            raise
        return True


@pytest.mark.parametrize(
    ("signals", "ends", "code", "was_cut_short"),
    [
        ((signal.SIGTERM,), True, 0, False),
        ((signal.SIGTERM,), ValueError("a bug"), 143, False),
        ((signal.SIGTERM, signal.SIGTERM), False, 143, True),
        ((signal.SIGTERM, signal.SIGINT), False, 143, True),
        ((signal.SIGINT,), True, 130, False),
    ],
    ids=["in peace", "with a bug", "twice", "then Ctrl-C", "Ctrl-C"],
)
def test_sigterm_leaves_time_to_hand_over_and_a_second_signal_ends_it(
    tmp_path: Path, signals: tuple[signal.Signals, ...], ends: bool | Exception, code: int, was_cut_short: bool
) -> None:
    process = HandingOver(*signals, ends=ends)
    assert asyncio.run(_supervise("taskmanager", lambda: process, context(tmp_path))) == code
    assert process.was_cut_short is was_cut_short
    assert process.has_begun.is_set() == (signals != (signal.SIGINT,))


def test_what_a_running_process_prints_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_frame, "_PRINTS_INTERVAL", 0.001)
    monkeypatch.setattr(log_files, "SIZE_MAX", 3)
    names = ("tm-0-h.out", "tm-0-h-spark-jvm.log", "log/etcd.log")
    (tmp_path / "log").mkdir()
    for name in (*names, "tm-1-h.out", "tm-0-h.log"):
        (tmp_path / name).write_text("text")
    given = replace(context(tmp_path), environment={"FLINKLIKE_LOG_FILE": str(tmp_path / "tm-0-h.log")})

    class Waiting:
        async def run(self, given: ProcessContext) -> None:
            await eventually(lambda: not any((tmp_path / name).stat().st_size for name in names), "all are cut")
            with (tmp_path / names[0]).open("a") as out:
                out.write("next text")
            await eventually((tmp_path / f"{names[0]}.2").exists, "it is cut again")

    assert asyncio.run(_supervise("taskmanager", Waiting, given)) == 0
    assert [(tmp_path / f"{name}.1").read_text() for name in names] == ["ext", "ext", "ext"], "the end of each"
    assert [(tmp_path / name).read_text() for name in ("tm-1-h.out", "tm-0-h.log")] == ["text", "text"]


def test_the_ready_file_is_complete_when_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "pid" / "ready"
    report_ready({"FLINKLIKE_READY_FILE": str(path)}, {"address": "h:1"})
    assert json.loads(path.read_text()) == {"address": "h:1"}
    assert [one.name for one in path.parent.iterdir()] == ["ready"]
    report_ready({}, {"address": "h:1"})


def test_options_become_settings(tmp_path: Path) -> None:
    given = configuration(
        "jobmanager.max-unfinished-jobs=7", "jobstore.expiration-time=1 min", "heartbeat.interval=1 s", "rest.port=0"
    )
    dispatcher = job_manager_options.dispatcher_settings(given)
    assert dispatcher.limits.jobs_max == 7
    assert dispatcher.shown.age_millis_max == 60_000
    assert dispatcher.heartbeat_interval == 1.0
    assert job_manager_options.rest_settings(given).port == 0
    layout = Layout(home=tmp_path, conf=tmp_path, run=tmp_path)
    rpc = process_options.rpc_settings(
        given,
        layout,
        Incarnation("a" * 32),
        address=jm.JOBMASTER_ADDRESS,
        bind_host=jm.JOBMASTER_BIND_HOST,
        port=jm.JOBMASTER_PORT,
    )
    assert rpc.port == 0
    assert process_options.high_availability_settings(given, layout).etcd is None
    token, again = (process_options.cluster_token(given, layout) for _ in range(2))
    assert token is not None
    assert again is not None
    assert again.reveal() == token.reveal()
    assert process_options.cluster_token(configuration("security.authentication=none"), layout) is None


def test_an_embedded_etcd_that_does_not_run_is_said(tmp_path: Path) -> None:
    given = configuration("high-availability.type=etcd", "high-availability.etcd.embedded=true")
    with pytest.raises(InvalidInputError, match=r"bin/start-cluster\.sh"):
        process_options.high_availability_settings(given, Layout(home=tmp_path, conf=tmp_path, run=tmp_path))


def test_processes_show_each_other_something_that_is_no_token(tmp_path: Path) -> None:
    """R48: derived from the cluster's key, or of a file; the cluster's token beside it if that is asked for."""
    layout = Layout(home=tmp_path, conf=tmp_path, run=tmp_path)

    def settings(*options: str) -> RpcSettings:
        return process_options.rpc_settings(
            configuration(*options),
            layout,
            Incarnation("a" * 32),
            address=jm.JOBMASTER_ADDRESS,
            bind_host=jm.JOBMASTER_BIND_HOST,
            port=jm.JOBMASTER_PORT,
        )

    derived = settings()
    assert derived.credential == settings().credential
    assert derived.former is None
    assert not (tmp_path / "token").exists(), "nobody but REST needs it"
    token = process_options.cluster_token(configuration(), layout)
    assert token is not None
    assert derived.credential is not None
    assert not derived.credential.matches(token.reveal())
    assert (tmp_path / "cluster-key").read_text().strip() not in derived.credential.reveal()
    upgrading = settings("security.internal.accept-cluster-token=true")
    assert upgrading.credential == derived.credential
    assert upgrading.former is not None
    assert upgrading.former.reveal() == token.reveal()
    own = settings("security.internal.token-file=internal").credential
    assert own is not None
    assert own.matches((tmp_path / "internal").read_text().strip())
    assert not own.matches(derived.credential.reveal())
    assert settings("security.authentication=none").credential is None
