"""The commands that show and cancel: tables, JSON, and one sentence for each bad input."""

import json
import re
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest
from rich.console import Console

from airflow_flinklike.cli.connection import connect
from airflow_flinklike.cli.delegation_tokens import tokens_in_words
from airflow_flinklike.cli.render import (
    accumulators_table,
    console,
    duration_text,
    granted_in_words,
    principals_table,
    spark_progress,
    table,
    time_text,
    value_text,
)
from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.client.protocol import Request
from runtime.common.accumulators import AccumulatorKind, UserAccumulator
from runtime.common.ids import JobId
from runtime.common.shares import QueueSettings, QueueStatus
from runtime.common.states import JobStatus
from runtime.common.stream_progress import NO_BATCH
from runtime.executiongraph.archived_checkpoints import NO_SIZE, ArchivedCheckpoints
from runtime.gateways.overview import WorkersStatus, WorkerStatus
from tests.kit.control_plane.streaming_jobs import told
from tests.kit.host.command_line import RunCommand
from tests.kit.rest.fakes import JOB, FakeTaskExecutor, archived, summary
from tests.kit.rest.server import RestThread
from tests.kit.rest.streaming_graphs import CHECKPOINTS, position, put_checkpoints, put_streams

OTHER = JobId("b" * 32)
COMMANDS = [
    *["run", "list", "info", "status", "logs", "cancel", "taskmanagers", "jobmasters", "jobs move", "explain"],
    *["delegation-tokens", "open", "history", "process-log", "thread-dump", "log-level", "checkpoints"],
    *["stop", "savepoint trigger"],
    *["certs init", "certs issue", "certs renew"],
]


def test_a_finished_vertex_shows_no_old_count_of_spark_tasks() -> None:
    progress = {"text": "3 of 3 splits", "spark-tasks-completed": 1, "spark-tasks-total": 2}
    assert spark_progress({"status": "RUNNING", "progress": progress}) == "3 of 3 splits, Spark 1/2 tasks"
    assert spark_progress({"status": "FINISHED", "progress": progress}) == "3 of 3 splits"


def test_list(flinklike: RunCommand, server: RestThread) -> None:
    assert flinklike("list").out == "No jobs.\n"
    server.put(JOB, JobStatus.RUNNING)
    server.put(OTHER, JobStatus.FINISHED)
    done = flinklike("list")
    assert done.code == 0
    header, *lines = done.out.splitlines()
    assert header.split() == ["job", "name", "state", "started", "time", "tasks", "of"]
    assert [line.split()[:3] for line in lines] == [[JOB, "daily", "RUNNING"], [OTHER, "daily", "FINISHED"]]
    assert flinklike("list", "--state", "finished").out.count("daily") == 1
    assert flinklike("list", "--state", "finished", "--state", "running").out.count("daily") == 2
    assert flinklike("list", "--state", "running", "--state", "failed").out.count("daily") == 1
    assert flinklike("list", "--name", "ail").out.count("daily") == 2
    assert flinklike("list", "--name", OTHER[:5], "--state", "finished").out.count("daily") == 1
    assert flinklike("list", "--name", "hourly").out == "No jobs.\n"


def test_lists_say_why_jobs_have_failed(
    flinklike: RunCommand, server: RestThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLINKLIKE_HISTORY_ADDRESS", server.address)
    server.put(JOB, JobStatus.FAILED)
    made = replace(summary(JOB, JobStatus.FAILED), failure="KeyError: 'prise'\x1b[31m", failure_labels=("type=USER",))
    server.do(lambda: server.fakes.dispatcher.summaries.update({JOB: made}))
    for command in ("list", "history"):
        assert "'prise'\\x1b[31m" in "".join(flinklike(command).out.split())


def test_status(flinklike: RunCommand, server: RestThread) -> None:
    server.put(JOB, JobStatus.RUNNING)
    assert flinklike("status", JOB).out == "RUNNING\n"
    assert json.loads(flinklike("status", JOB, "--json").out) == {
        "job_id": JOB,
        "status": "RUNNING",
        "pending_reason": "",
    }


def test_info(flinklike: RunCommand, server: RestThread) -> None:
    server.put(JOB, JobStatus.FAILED)
    failed = flinklike("info", JOB).out
    assert re.match(rf"Job {JOB} FAILED after [\d.]+ s: ValueError: no such column\n", failed), "as `run` ends"
    assert re.search(r"\n\d{4}-\d\d-\d\d \d\d:\d\d:01  read \(1/1\) on tm-1\n", failed)
    assert re.search(r"write <b> +FINISHED +1/1 +0 ", failed)
    server.put(JOB, JobStatus.FINISHED)
    assert '"rows": 3' in flinklike("info", JOB).out


def test_info_shows_what_the_code_of_the_job_has_counted(flinklike: RunCommand, server: RestThread) -> None:
    server.put(JOB, JobStatus.FINISHED)
    assert "counted by" not in flinklike("info", JOB).out
    graph = server.dispatcher.graphs[JOB]
    counted = tuple(UserAccumulator(f"rows of {number:03}", AccumulatorKind.COUNTER, number) for number in range(59))
    seconds = UserAccumulator("seconds\x1b[2J", AccumulatorKind.HISTOGRAM, 2, 1.5, 0.5, 1.0)
    first = replace(graph.vertices[0], accumulators=(seconds, *counted))
    server.dispatcher.graphs[JOB] = replace(graph, vertices=(first, *graph.vertices[1:]), accumulators_left_out=3)
    shown = flinklike("info", JOB).out
    assert re.search(r"\nrows of 007 +LongCounter +7 *\n", shown)
    assert "and 10 more, which --json has\n3 more entries than the cluster keeps of one job\n" in shown
    assert "\x1b" not in shown
    body = json.loads(flinklike("info", JOB, "--json").out)["accumulators"]
    assert len(body["user-task-accumulators"]) == 60
    assert body["left-out"] == 3
    (told,) = (one for one in body["user-task-accumulators"] if one["type"] == "Histogram")
    shown_of = accumulators_table({"user-task-accumulators": [told]})
    with (console := Console(width=200)).capture() as captured:
        console.print(shown_of)
    assert "Histogram  count 2, sum 1.5, min 0.5, max 1.0" in captured.get()


def test_info_says_who_runs_the_job_and_from_whom_it_was_taken_over(flinklike: RunCommand, server: RestThread) -> None:
    server.put(JOB, JobStatus.RUNNING)
    told = server.dispatcher.summaries[JOB]
    server.dispatcher.summaries[JOB] = replace(told, submitter="sam", client="airflow sales.load\x1b[2J")
    shown = flinklike("info", JOB).out
    assert "queue" not in shown
    _, _, submitted, owner, takeover, *_ = shown.splitlines()
    assert submitted.startswith("submitted by sam with airflow sales.load")
    assert "\x1b" not in submitted
    assert owner == f"JobMaster process {'b' * 32} at 127.0.0.1:2"
    assert takeover.endswith(": taken over from 10.0.0.9:1 by 127.0.0.1:2 because it was <lost>")
    server.put(JOB, JobStatus.FINISHED)
    assert owner not in flinklike("info", JOB).out
    assert takeover in flinklike("info", JOB).out


def test_info_has_a_line_for_each_query(flinklike: RunCommand, server: RestThread) -> None:
    silent_one = told(batch_id=-1, backlog=-1, progressed_millis=0, state_bytes=0)
    server.do(lambda: put_streams(server.dispatcher, JOB, told(), silent_one))
    *_, head, first, second, silent = flinklike("info", JOB).out.splitlines()
    assert head.split()[:4] == ["query", "batch", "rows", "rows/s"]
    assert re.match(r"orders 0 +41 +7000 +100\.5 +250\.0 +0\.34 s +12 rows, 4\.0 KiB +3 +2023-11-1\d \S+ +\d+ h", first)
    assert re.match(r"orders 0 +none yet +7000 ", second)
    assert re.match(r"orders 1 +none yet, RUNNING$", silent.strip())
    body = json.loads(flinklike("info", JOB, "--json").out)
    assert body["streams"][0]["subtasks"][0]["queries"][0]["batch-id"] == 41
    server.put(OTHER, JobStatus.RUNNING)
    assert "streams" not in json.loads(flinklike("info", OTHER, "--json").out)


def test_info_says_for_how_long_a_query_is_stalled(flinklike: RunCommand, server: RestThread) -> None:
    server.do(lambda: put_streams(server.dispatcher, JOB, told(busy_since_millis=1_700_000_000_000)))
    assert re.search(r" ago, STALLED for \d+ h", flinklike("info", JOB).out)
    hangs = told(busy_since_millis=1_700_000_000_000, thread="the thread, WAITING in A.b:1", stage="stage 7, start")
    server.do(lambda: put_streams(server.dispatcher, JOB, hangs))
    assert re.search(
        r" ago, STALLED for .* h.*: stage 7, start, the thread, WAITING in A\.b:1", flinklike("info", JOB).out
    )


def test_info_says_that_batches_are_late(flinklike: RunCommand, server: RestThread) -> None:
    server.do(lambda: put_streams(server.dispatcher, JOB, told(interval_millis=100)))
    assert re.search(r" ago, late: its trigger is 0\.10 s", flinklike("info", JOB).out)


def test_checkpoints(flinklike: RunCommand, server: RestThread) -> None:
    server.do(lambda: put_checkpoints(server.dispatcher, JOB, CHECKPOINTS))
    every, restored, head, *lines = flinklike("checkpoints", JOB).out.splitlines()
    assert every == "every 10.00 s: 2 completed, 1 failed, 1 in progress, 1 restored"
    assert re.match(r"restored \d{4}-.* checkpoint 4 was the latest when queries were started again$", restored)
    assert head.split() == ["id", "state", "triggered", "duration", "queries", "state", "size"]
    assert [line.split()[:2] for line in lines] == [
        ["7", "IN_PROGRESS"],
        ["6", "COMPLETED"],
        ["5", "FAILED"],
        ["4", "COMPLETED"],
    ]
    assert re.search(r" 0\.04 s +2/2 +8\.0 KiB", lines[1])
    assert re.search(r" 5\.00 s +0/2 +0 B +Checkpoint was declined\. orders", lines[2])
    savepoint = replace(CHECKPOINTS.history[1], checkpoint_id=8, savepoint="/s/savepoint-1", state_bytes=NO_SIZE)
    server.do(lambda: put_checkpoints(server.dispatcher, JOB, replace(CHECKPOINTS, history=(savepoint,))))
    assert re.search(r" 0\.04 s +2/2 +- +file:///s/savepoint-1", flinklike("checkpoints", JOB).out)
    whole = replace(savepoint, state_bytes=2048)
    server.do(lambda: put_checkpoints(server.dispatcher, JOB, replace(CHECKPOINTS, history=(whole,))))
    assert re.search(r" 0\.04 s +2/2 +2\.0 KiB +file:///s/savepoint-1", flinklike("checkpoints", JOB).out)
    begun = replace(CHECKPOINTS.history[1], positions=(position(0, NO_BATCH, 9), position(1, 4, 9)))
    server.do(lambda: put_checkpoints(server.dispatcher, JOB, replace(CHECKPOINTS, history=(begun,))))
    assert "no batch yet of 1 of 2 queries" in flinklike("checkpoints", JOB).out
    server.do(lambda: put_checkpoints(server.dispatcher, JOB, CHECKPOINTS))
    body = json.loads(flinklike("checkpoints", JOB, "--json").out)
    assert (body["counts"]["total"], body["config"]["interval"]) == (4, 10_000)
    restored_only = ArchivedCheckpoints(
        0, 600_000, 0, 0, restored_count=1, restored_millis=9, restored_savepoint="/s/1"
    )
    server.do(lambda: put_checkpoints(server.dispatcher, JOB, restored_only))
    every, told = flinklike("checkpoints", JOB).out.splitlines()
    assert every == "none by themselves: 0 completed, 0 failed, 0 in progress, 1 restored"
    assert re.match(r"restored \d{4}-.* queries were started from savepoint /s/1$", told)
    server.do(lambda: put_checkpoints(server.dispatcher, JOB, ArchivedCheckpoints(10_000, 600_000, 0, 0)))
    assert flinklike("checkpoints", JOB).out.count("\n") == 1
    server.put(JOB, JobStatus.RUNNING)
    refused = flinklike("checkpoints", JOB)
    assert (refused.code, "Checkpointing has not been enabled." in refused.err) == (1, True)


def test_names_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    name = "[bold]a[/bold] :smile: " + "long " * 100
    console().print(table(("name", "state"), [(name, "RUNNING")]))
    console(stderr=True).print(name)
    out, err = capsys.readouterr()
    assert out.splitlines()[1].split("RUNNING")[0].strip() == name.strip()
    assert err.strip() == name.strip()


def test_a_taskmanager_is_drained_and_used_again(flinklike: RunCommand) -> None:
    assert flinklike("taskmanagers", "drain", "tm-1").out == "TaskManager tm-1 is draining.\n"
    assert re.search(r"tm-1 +127\.0\.0\.1:1 +draining", flinklike("taskmanagers").out)
    undrained = flinklike("taskmanagers", "undrain", "tm-1", "--json")
    assert json.loads(undrained.out) == {"id": "tm-1", "draining": False}
    assert "ready" in flinklike("taskmanagers").out
    unknown = flinklike("taskmanagers", "drain", "no/body")
    assert (unknown.code, unknown.out) == (1, "")


def test_taskmanagers_and_jobmasters(flinklike: RunCommand) -> None:
    assert re.search(r"tm-1 +127\.0\.0\.1:1 +ready +1/2 +all +yes +yes +", flinklike("taskmanagers").out)
    assert re.search(r"b{32} +127\.0\.0\.1:2 +ready +3/1000", flinklike("jobmasters").out)


def test_drain_and_undrain(flinklike: RunCommand) -> None:
    process = "b" * 32
    assert flinklike("jobmasters", "drain", process).out == f"JobMaster process {process} is draining.\n"
    assert re.search(r"b{32} +127\.0\.0\.1:2 +draining", flinklike("jobmasters").out)
    done = flinklike("jobmasters", "undrain", process, "--json")
    assert json.loads(done.out) == {"id": process, "draining": False}
    unknown = flinklike("jobmasters", "drain", "nobody")
    assert (unknown.code, "nobody is not known" in unknown.err) == (1, True)


def test_move(flinklike: RunCommand, server: RestThread) -> None:
    server.put(JOB, JobStatus.RUNNING)
    process = "b" * 32
    assert flinklike("jobs", "move", JOB, "--to", process).out == f"Moving job {JOB} to JobMaster process {process}.\n"
    assert server.dispatcher.moves == [(JOB, process)]
    assert flinklike("jobs", "move", JOB, "--to", "nobody").code == 1


def test_cancel(flinklike: RunCommand, server: RestThread) -> None:
    server.put(JOB, JobStatus.RUNNING)
    assert flinklike("cancel", JOB).out == f"Cancelling job {JOB}.\n"
    assert flinklike("cancel", JOB, "--json").code == 0
    server.put(JOB, JobStatus.FINISHED)
    done = flinklike("cancel", JOB)
    assert (done.code, "already reached another terminal state (FINISHED)" in done.err) == (1, True)
    server.put(JOB, JobStatus.CANCELED)
    done = flinklike("cancel", JOB)
    assert (done.code, done.out) == (0, f"Job {JOB} was CANCELED before.\n"), "what was asked for is so"


def test_without_a_cluster_it_is_said_how_to_start_one(flinklike: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_flinklike.cli.app.connect", partial(connect, retry_for=0.0))
    done = flinklike("list", "--address", "http://127.0.0.1:9")
    assert done.code == 1
    assert done.err.startswith("flinklike: no JobManager answers at http://127.0.0.1:9")
    assert done.err.endswith("Is it started? bin/start-cluster.sh starts the cluster that conf/ describes\n")


def test_who_waits_for_a_cluster_reads_so(
    flinklike: RunCommand, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("airflow_flinklike.client.sync.time.sleep", lambda _: None)
    monkeypatch.setattr("airflow_flinklike.cli.app.connect", partial(connect, retry_for=8.0))
    told = flinklike("list", "--address", "http://127.0.0.1:9").err.splitlines()
    assert [line.partition(" (")[0] for line in told] == 2 * ["flinklike: no JobManager answers at http://127.0.0.1:9"]
    assert told[0].endswith("; trying for 8 s")


def test_a_group_of_commands_alone_shows_its_help(flinklike: RunCommand) -> None:
    done = flinklike("jobs")
    assert (done.code, done.err, "move" in done.out) == (1, "", True)


def test_logs(flinklike: RunCommand, server: RestThread) -> None:
    server.put(JOB, JobStatus.FINISHED)
    assert flinklike("logs", JOB).out == (
        "==> read stdout\nhello from the task\n==> write <b> stdout\nhello from the task\n"
    )
    assert flinklike("logs", JOB, "--vertex", "read", "--stream", "stdout").out.count("hello") == 1
    assert flinklike("logs", JOB, "--vertex", "read", "--stream", "stderr").out == ""
    lines = [json.loads(line) for line in flinklike("logs", JOB, "--json").out.splitlines()]
    assert lines[0] == {
        "vertex": "read",
        "subtask": 0,
        "attempt": 0,
        "stream": "stdout",
        "text": "hello from the task\n",
        "beginning_was_dropped": False,
        "dropped_bytes": 0,
    }


def test_logs_follow_until_the_end(flinklike: RunCommand, server: RestThread) -> None:
    """Each piece once, also when the log grows between two looks."""
    server.put(JOB, JobStatus.RUNNING)
    looks = []

    def end_at_the_second_look() -> None:
        looks.append(1)
        if len(looks) == 2:
            server.dispatcher.put(JOB, JobStatus.FINISHED, 2000)

    original = server.dispatcher.request_job

    async def request_job(request: object, /) -> object:
        end_at_the_second_look()
        return await original(request)  # type: ignore[arg-type]  # handed through

    server.do(lambda: setattr(server.dispatcher, "request_job", request_job))
    done = flinklike("logs", JOB, "-f", "--vertex", "read")
    assert (done.code, done.out) == (0, "==> read stdout\nhello from the task\n")
    assert len(looks) >= 2


def test_logs_that_have_ended_are_not_asked_for_again(
    flinklike: RunCommand, server: RestThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both attempts have ended, the job has not: each log is read once, and looks become rarer and rarer."""
    server.put(JOB, JobStatus.RUNNING)
    looks: list[dict[str, Any]] = []
    insist = FlinklikeClient._insist

    def count(client: FlinklikeClient, request: Request, attempts: Any) -> Any:
        if request.path.endswith("/logs"):
            assert isinstance(request.body, bytes)
            looks.append(json.loads(request.body))
            if len(looks) == 4:
                server.put(JOB, JobStatus.FINISHED)
        return insist(client, request, attempts)

    def end_attempts() -> None:
        server.dispatcher.graphs[JOB] = replace(archived(JOB, JobStatus.FINISHED), status=JobStatus.RUNNING)

    server.do(end_attempts)
    monkeypatch.setattr(FlinklikeClient, "_insist", count)
    done = flinklike("logs", JOB, "-f", "--vertex", "read")
    assert (done.code, done.out) == (0, "==> read stdout\nhello from the task\n")
    drained = {"drained": [[f"{1:032x}", 0, "0"]]}
    assert [look["position"] for look in looks] == [{}, drained, drained, drained]
    assert [look.get("wait") for look in looks] == [None, 0.5, 1, 2]


def test_a_log_that_is_gone_is_told_once(flinklike: RunCommand, server: RestThread) -> None:
    server.put(JOB, JobStatus.FINISHED)
    server.do(lambda: setattr(server.fakes.resource_manager, "task_managers", list))
    try:
        done = flinklike("logs", JOB, "--vertex", "read", "--stream", "stdout")
    finally:
        server.do(lambda: delattr(server.fakes.resource_manager, "task_managers"))
    assert done.out == ""
    assert done.err.startswith("the log of read: TaskManager tm-1 is not registered. It is on host 127.0.0.1 in log/")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "--json"],
        ["info", JOB, "--json"],
        ["status", JOB, "--json"],
        ["taskmanagers", "--json"],
        ["jobmasters", "--json"],
        ["delegation-tokens", "--json"],
    ],
)
def test_json_is_one_document_on_one_line(flinklike: RunCommand, server: RestThread, arguments: list[str]) -> None:
    server.put(JOB, JobStatus.FAILED)
    done = flinklike(*arguments)
    assert (done.code, done.err, done.out.count("\n")) == (0, "", 1)
    assert isinstance(json.loads(done.out), dict)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(flinklike: RunCommand, command: str) -> None:
    done = flinklike(*command.split(), "--help")
    assert done.code == 0
    assert f"flinklike {command}" in done.out
    assert "--json" in done.out


def test_help_names_every_command(flinklike: RunCommand) -> None:
    done = flinklike("--help")
    assert all(f" {command.split()[0]} " in done.out for command in COMMANDS)
    assert re.match(r"flinklike \d+\.\d+", flinklike("--version").out)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        *(
            ([command, "day x"], "expected 32 lower-case hex digits, which `flinklike list --name 'day x'` finds")
            for command in ("status", "info", "logs", "cancel", "checkpoints", "open")
        ),
        (
            ["status", "x"],
            "'x' is not a job id: expected 32 lower-case hex digits, which `flinklike list --name x` finds",
        ),
        (["status", "c" * 32], f"Job {'c' * 32} not found"),
        (["info", "c" * 32], f"Job {'c' * 32} not found"),
        (["logs", "c" * 32], f"Job {'c' * 32} not found"),
        (["cancel", "c" * 32], f"Job {'c' * 32} not found"),
        (["logs", JOB, "--vertex", "x"], f"--vertex 'x': job {JOB} has 'read', 'write <b>'"),
        (["logs", JOB, "--vertex", "read", "--subtask", "3"], "vertex 'read' has 1 subtasks, from 0"),
        (["logs", JOB, "--attempt", "1"], "--attempt 1: the last attempt is 0, and the first one 0"),
        (["logs", JOB, "--attempt", "-1"], "--attempt '-1': expected the number of an attempt, from 0, or all"),
        (["logs", JOB, "--attempt", "9" * 99], "expected the number of an attempt, from 0, or all"),
        (["logs", JOB, "--stream", "out"], "--stream out: expected stdout, stderr, log"),
        (["list", "--address", "ftp://x"], "'ftp://x' is no address of a cluster"),
        (["list", "--token-file", "nowhere"], "the token file nowhere cannot be read"),
        (["list", "--state", "typo"], "'typo' is not one of 'initializing', 'created'"),
        (["list", "--stat"], "No such option: --stat. Did you mean --state? (see --help)"),
        (["list", "--address"], "Option '--address' requires an argument"),
        (["run"], "Missing argument 'target' (see --help)"),
        (["run", "x:y", "-p", "0"], "Invalid value for '-p'"),
        (["run", "--master", "local", "etl.py"], "--master is an option of spark-submit, and `flinklike run` has none"),
        (["run", "--driver-memory"], "Option '--driver-memory' requires an argument"),
        (["run", "--properties-file", "nowhere", "etl.py"], "--properties-file nowhere cannot be read"),
        (["run", "--class", "a.B", "x.jar"], "jar 'x.jar' does not exist"),
        (["run", "--class", "a.B", "etl.py"], "main class a.B: 'etl.py' is no jar, and only a jar has one"),
        (["run", "--mater", "x", "etl.py"], "No such option: --mater (see --help)"),
        (["list", "--master", "x"], "No such option: --master (see --help)"),
        (["status", JOB, "more"], "unexpected extra argument"),
        (["lst"], "No such command 'lst'"),
        ([], "name a command (see --help)"),
    ],
)
def test_bad_input_is_one_sentence(
    flinklike: RunCommand, server: RestThread, arguments: list[str], sentence: str
) -> None:
    server.put(JOB, JobStatus.RUNNING)
    done = flinklike(*arguments)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("flinklike: ")
    assert done.err.count("\n") == 1
    assert sentence in done.err


def test_delegation_tokens(flinklike: RunCommand) -> None:
    done = flinklike("delegation-tokens")
    header, line = done.out.splitlines()
    assert header.split() == ["provider", "tokens", "failures", "why"]
    assert line.split(maxsplit=1)[0] == "vault"
    assert line.endswith("2         vault ended with code 1")
    told = {"provider": "vault", "valid-until": 1_800_000_000_000, "obtained": True}
    at = time_text(1_800_000_000_000)
    assert tokens_in_words(told, 1_700_000_000_000) == f"until {at}"
    assert tokens_in_words(told, 1_900_000_000_000) == f"ended {at}"
    assert tokens_in_words({**told, "valid-until": 0}, 0) == "without an end"
    assert tokens_in_words({**told, "valid-until": 0, "obtained": False}, 0) == "none yet"


def test_what_somebody_was_given_is_one_line() -> None:
    made = {"name": "sam", "role": "viewer", "namespace": "*", "tokens": [{"expires": 0}], "certificate": ""}
    assert granted_in_words(made) == "sam: role viewer, all namespaces (*), without an end"
    by_certificate = {**made, "namespace": "team-a", "tokens": [], "certificate": "alice"}
    assert granted_in_words(by_certificate) == "sam: role viewer, namespace team-a, certificate alice"


def test_a_token_that_has_ended_is_shown_so() -> None:
    one = {"name": "sam", "role": "viewer", "namespace": "*", "tokens": [{"expires": 1000}, {"expires": 3000}]}
    shown = principals_table([one], 2000)
    (cell,) = shown.columns[3].cells
    assert [words.split(" ")[0] for words in str(cell).split(", ")] == ["ended", "until"]


def test_a_wrong_token_is_one_sentence(flinklike: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLINKLIKE_TOKEN", "wrong")
    done = flinklike("list")
    assert done.code == 1
    assert "This cluster requires its token" in done.err


def test_control_characters_of_names_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    name = "a\x1b]0;title\x07b\x9b"
    console().print(table(("name",), [(name,)]))
    console(stderr=True).print(name, style="red")
    out, err = capsys.readouterr()
    escaped = "a\\x1b]0;title\\x07b\\x9b"
    assert (out.splitlines()[1].strip(), err) == (escaped, f"{escaped}\n")


def test_a_result_stays_json_and_steers_nothing(flinklike: RunCommand, server: RestThread) -> None:
    server.put(JOB, JobStatus.FINISHED)
    value = {"ü": "a\u202eb\x9b\x1b\x7f", "rows": [1, None]}
    shown = value_text(value).plain
    assert json.loads(shown) == value
    assert "ü" in shown
    assert not set(shown) & set("\u202e\x9b\x1b\x7f")
    assert '"rows": 3' in flinklike("info", JOB).out


def test_logs_on_a_terminal_keep_colours_only(
    flinklike: RunCommand, server: RestThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pipe the bytes are unchanged."""
    server.put(JOB, JobStatus.FINISHED)
    text = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \u202e\n"
    monkeypatch.setattr(FakeTaskExecutor, "text", text.encode())
    assert text in flinklike("logs", JOB).out
    monkeypatch.setattr("airflow_flinklike.cli.logs._is_terminal", lambda: True)
    assert "\x1b[31mred\x1b[0m \\x1b]0;title\\x07 \\u202e\n" in flinklike("logs", JOB).out


@pytest.mark.parametrize(
    ("millis", "text"), [(-1, ""), (0, "0.00 s"), (1234, "1.23 s"), (61_900, "1 min 01 s"), (3_720_000, "1 h 02 min")]
)
def test_durations(millis: int, text: str) -> None:
    assert duration_text(millis) == text


def test_open_prints_an_address_that_signs_in_once(flinklike: RunCommand, server: RestThread) -> None:
    server.put(JOB, JobStatus.RUNNING)
    told = flinklike("open", JOB, "--print").out
    place, _, code = told.removeprefix("Open within a minute, once: ").strip().partition("#code=")
    assert place == f"{server.address}/ui/jobs/{JOB}"
    script = {"accept": "application/json"}
    first = httpx.post(place, data={"code": code}, headers=script)
    assert (first.status_code, "set-cookie" in first.headers) == (200, True)
    own = {"x-csrf-token": first.json()["csrf-token"]}
    assert httpx.get(f"{server.address}/jobs/{JOB}", cookies=first.cookies, headers=own).status_code == 200
    again = httpx.post(place, data={"code": code}, headers=script)
    assert (again.status_code, "run `flinklike open` again" in again.text) == (401, True)
    assert json.loads(flinklike("open", "--json").out)["url"].startswith(f"{server.address}/ui#code=")


def test_open_refuses_what_is_no_job(flinklike: RunCommand) -> None:
    done = flinklike("open", "x", "--print")
    assert (done.code, "expected 32" in done.err) != (0, True)


def test_queues_are_shown_with_what_they_hold_and_who_waits(
    flinklike: RunCommand, server: RestThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert flinklike("queues").out.strip() == "No queue has a job."
    limits = QueueSettings(weight=2.5, min_slots=3, max_slots=8, max_running_jobs=4)
    found = [QueueStatus("default", QueueSettings(), 1, 2 / 3, 1, 0), QueueStatus("etl", limits, 0, 4 / 3, 0, 12)]
    monkeypatch.setattr(server.fakes.resource_manager, "queue_statuses", found)
    done = flinklike("queues")
    header, *lines = done.out.splitlines()
    assert header.split() == ["queue", "slots", "share", "jobs", "waiting", "weight", "min", "max"]
    assert [line.split() for line in lines] == [
        ["default", "1", "0.667", "1", "0", "1"],
        ["etl", "0", "1.333", "0/4", "12", "2.5", "3", "8"],
    ]
    assert "the queues have 3 min-slots in all, and there are 2 slots" in done.err.replace("\n", " ")
    assert json.loads(flinklike("queues", "--json").out)["queues"][1]["jobs-waiting"] == 12


def test_processes_of_a_driver_are_shown_while_they_come_and_go(
    flinklike: RunCommand, server: RestThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    managers = (
        WorkerStatus("w-1", "registered", 1_000),
        WorkerStatus("w-2", "pending", 2_000),
        WorkerStatus("w-3-gpu", "leaving", 3_000, "it was idle for 30 s"),
    )
    found = [
        WorkersStatus("taskmanager", managers, 1, ""),
        WorkersStatus("jobmaster", (WorkerStatus("w-4", "starting", 4_000),), 1, "no memory [1]"),
    ]
    monkeypatch.setattr(server.fakes.resource_manager, "worker_statuses", found)
    shown = flinklike("taskmanagers").out
    assert [line.split()[:3] for line in shown.splitlines() if line.startswith("w-")] == [
        ["w-2", "default", "pending"],
        ["w-3-gpu", "gpu", "leaving"],
    ]
    assert "it was idle for 30 s" in shown
    masters = flinklike("jobmasters")
    assert "w-4" in masters.out
    assert masters.err.strip() == "The driver starts none: no memory [1]"
    assert "w-2" not in flinklike("taskmanagers", "--json").out


def test_info_names_the_queue_and_the_priority(flinklike: RunCommand, server: RestThread) -> None:
    server.put(JOB, JobStatus.RUNNING)
    told = server.dispatcher.summaries[JOB]
    server.dispatcher.summaries[JOB] = replace(told, queue="etl", priority=-4)
    assert "queue etl with priority -4" in flinklike("info", JOB).out
