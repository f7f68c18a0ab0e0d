"""A task that says what no task says, over the connection of its own process, ends alone (R52)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_flinklike import function_job
from airflow_flinklike.api.handle import JobHandle
from airflow_flinklike.exceptions import JobFailedError
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached
from tests.process.conftest import WITHOUT_SPARK

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster({**WITHOUT_SPARK, "taskmanager.memory.task.size": "640 mb"}) as found:
        yield found


def neighbour(ctx: Any, stop: str) -> int:
    """Waits in the other slot, on the same TaskManager."""
    import time
    from pathlib import Path

    while not Path(stop).exists():
        ctx.report_progress(0.5, "at work")
        time.sleep(0.05)
    return int(ctx.attempt_number)


@pytest.fixture(scope="module")
def other_job(cluster: ScriptCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobHandle]:
    """Runs during all tests of this module, once."""
    stop = tmp_path_factory.mktemp("neighbour") / "stop"
    handle = function_job(neighbour, args=[str(stop)]).submit(cluster.url, token=cluster.token, detached=True)
    reached(lambda: handle.details()["vertices"][0].get("progress"), "the neighbour works", timeout=60)
    yield handle
    stop.touch()
    with handle:
        assert handle.result() == 0, "it has begun again: its TaskManager has ended"


def fails_with_a_long_class() -> None:
    """An accident of user code: a class that is made of data."""
    raise type("A" * 6_000_000, (Exception,), {})("too long")


def fails_in_another_script() -> None:
    """Each letter takes four bytes."""
    raise ValueError("\U0001f600" * 10_000_000)


def writes_frames(*payloads: str) -> None:
    """`kind payload`, as no slot process sends them; then it waits for its end."""
    import gc
    import time

    from runtime.taskexecutor.slot_process.channel import Channel
    from runtime.taskexecutor.slot_protocol.wire import FrameKind

    channel = next(one for one in gc.get_objects() if isinstance(one, Channel))
    for one in payloads:
        kind, _, payload = one.partition(" ")
        channel.send(FrameKind[kind], payload.encode())
    time.sleep(600)


def writes_last_words() -> None:
    """And ends before the TaskManager has read them."""
    import gc
    import os

    from runtime.taskexecutor.slot_process.channel import Channel
    from runtime.taskexecutor.slot_protocol.wire import FrameKind

    channel = next(one for one in gc.get_objects() if isinstance(one, Channel))
    for _ in range(100):
        channel.send(FrameKind.OUTPUT, b"[]")
    os._exit(3)


def outcome(**fields: str) -> str:
    said = {
        "state": '"FINISHED"',
        "failure": "null",
        "value": '""',
        "partitions": "[]",
        "outputs": "[]",
        "metrics": "{}",
        "is_clean": "true",
        "is_reusable": "true",
        "is_spark_lost": "false",
        **fields,
    }
    return "DONE {" + ",".join(f'"{name}":{value}' for name, value in said.items()) + "}"


HOSTILE = {
    "a number that no message carries": [outcome(metrics='{"read_bytes":9223372036854775808}')],
    "more than a message takes": [outcome(value='"' + "x" * 5_000_000 + '"')],
    "an end that is none": [outcome(state='"RUNNING"')],
    "the directory of others": [outcome(outputs='[{"base":"/tmp","directory":"/tmp/x","mode":"overwrite"}]')],
    "progress beyond measure": ['PROGRESS {"fraction":NaN,"text":"' + "x" * 2_000_000 + '"}'],
    "deep": ["SIGNAL " + "[" * 50_000],
    "no object": ["OUTPUT []"],
    "outputs without end": [
        "OUTPUT " + '{"base":"%s","directory":"%s","mode":"append"}' % (("/" + "x" * 60_000,) * 2) for _ in range(3)
    ],
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_no_slot_process_sends_ends_the_one_that_has_sent_it(
    cluster: ScriptCluster, other_job: JobHandle, what: str
) -> None:
    with pytest.raises(JobFailedError) as failed:
        function_job(writes_frames, args=HOSTILE[what]).submit(cluster.url, token=cluster.token).result()
    assert "no slot process sends" in failed.value.root_cause
    assert other_job.details()["state"] == "RUNNING"


def test_last_words_that_cannot_be_read_hold_up_no_slot(cluster: ScriptCluster, other_job: JobHandle) -> None:
    with pytest.raises(JobFailedError) as failed:
        function_job(writes_last_words).submit(cluster.url, token=cluster.token).result()
    assert failed.value.root_cause
    assert other_job.details()["state"] == "RUNNING"


@pytest.mark.parametrize("program", [fails_with_a_long_class, fails_in_another_script])
def test_a_failure_is_as_long_as_it_likes(cluster: ScriptCluster, other_job: JobHandle, program: Any) -> None:
    with pytest.raises(JobFailedError) as failed:
        function_job(program).submit(cluster.url, token=cluster.token).result()
    assert len(failed.value.root_cause) < 50_000
    assert other_job.details()["state"] == "RUNNING"


def test_the_task_manager_has_logged_nothing_of_a_crash(cluster: ScriptCluster, other_job: JobHandle) -> None:
    """Last: it is one of all that were here."""
    said = "".join(path.read_text(errors="replace") for path in (cluster.run / "run" / "log").glob("*taskmanager*"))
    assert "Traceback" not in said, said[-5000:]
    assert other_job.details()["state"] == "RUNNING"
