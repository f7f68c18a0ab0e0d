"""Files that processes leave for each other: in the run directory, and beside the users' outputs in their storage."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from airflow_flinklike.client.token import find_token, local_addresses
from airflow_flinklike.exceptions import AuthenticationError
from runtime.common.errors import InvalidInputError
from runtime.common.ids import ExecutionAttemptId, JobId, VertexId
from runtime.config.layout import Layout
from runtime.entrypoint.control import daemon
from runtime.entrypoint.control import embedded_etcd as embedded
from runtime.entrypoint.control.embedded_etcd import EmbeddedEtcdSettings
from runtime.entrypoint.control.pid_file import PidFile
from runtime.entrypoint.control.remote import RemoteHosts
from runtime.entrypoint.drivers.container_record import recorded
from runtime.entrypoint.drivers.ssh_calls import HostRefusedError, parsed
from runtime.entrypoint.drivers.ssh_hosts import labels_in
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.task import OutputDirectory
from runtime.taskexecutor.guard.records import Life, LifeRecord, reaped_lives, who_states
from runtime.taskexecutor.outputs.commit_records import claim, claim_in, claimed_in, read_claim
from runtime.taskexecutor.outputs.output_turns import _decode
from runtime.taskexecutor.outputs.turn_looks import taken_by
from runtime.taskexecutor.storage.core.output_plan import OutputPlan, planned_mode
from tests.fuzz.surface import Surface

JOB = JobId("a" * 32)
_LIFE = "1" * 32


def _begin_run() -> Callable[[bytes], object]:
    home = Path(tempfile.mkdtemp(prefix="fuzz-run."))
    run = home / "run"
    guards = run / "guards"
    (run / "pid").mkdir(parents=True)
    guards.mkdir()
    environment = {"FLINKLIKE_HOME": str(home)}
    layout = Layout.from_environment(environment)
    settings = EmbeddedEtcdSettings(run / "etcd", run / "etcd.log")

    def feed(data: bytes) -> object:
        rest = data[1:]
        match data[:1]:
            case b"p":
                (run / "pid" / "taskmanager.pid").write_bytes(rest)
                return len(PidFile(run / "pid", "taskmanager").running())
            case b"r":
                (run / "pid" / "jobmanager-0.json").write_bytes(rest)
                daemon._facts(run / "pid" / "jobmanager-0.json")
                return local_addresses(environment)
            case b"t":
                (run / "token").write_bytes(rest)
                return find_token(environment)
            case b"h" | b"c" | b"a":
                return _read_of_others(layout, data[:1], rest)
            case b"e":
                settings.state_file.write_bytes(rest)
                return embedded.running(settings)
            case _:
                (guards / _LIFE).write_bytes(rest)
                record = LifeRecord.take_over(guards / _LIFE)
                assert record is not None
                life = record.life()
                assert life is None or {type(value) for value in asdict(life).values()} <= {str, bool, int}
                record.close()
                reaped_lives(guards)
                return [Path(f"/proc/{pid}").exists() for pid, _ in who_states(guards)]

    return feed


def _read_of_others(layout: Layout, kind: bytes, rest: bytes) -> object:
    """What is recorded of other hosts, of containers, and what a host answers."""
    if kind == b"h":
        (layout.run / "remote.json").write_bytes(rest)
        return RemoteHosts(layout, {}).known()
    if kind == b"c":
        (layout.run / "containers.json").write_bytes(rest)
        return recorded(layout)
    found = parsed(rest)
    try:
        return None if found is None else labels_in(found)
    except HostRefusedError as error:
        return str(error)


def _run_seeds() -> Sequence[bytes]:
    life = json.dumps(asdict(Life(_LIFE, "host x", "boot", "pid:[1]", True, "/sys/fs/cgroup/x", 7))).encode()
    ready = json.dumps({"address": "127.0.0.1:1", "rpc": "127.0.0.1:2"}).encode()
    hosts = json.dumps({"hosts": [["host", "taskmanager"]], "ssh-options": ["-p", "22"]}).encode()
    etcd = json.dumps(
        {"pid": 2**22 + 1, "started": 1.5, "endpoint": "127.0.0.1:1", "version": "3", "scheme": "https"}
    ).encode()
    return [
        b"p12 34 0\n56 78 1\n",
        b"r" + ready,
        b"t" + b"ab" * 32,
        b"h" + hosts,
        b"c" + json.dumps({"host": "unix:///x", "certificates": "", "cluster_id": "sales"}).encode(),
        b"a" + json.dumps({"workers": ["w-000000000001"]}).encode(),
        b"e" + etcd,
        b"g" + life + b"\nreaped\nstated-by 12 34\n",
        b"g" + life + b"\n",
    ]


def _begin_commits() -> Callable[[bytes], object]:
    def feed(data: bytes) -> object:
        rest = data[1:]
        match data[:1]:
            case b"o":
                message = read_claim(rest)
                claim_in(rest)
                claimed_in(rest)
                if message is None:
                    return "in part"
                assert read_claim(claim(message)) == message
                return "read"
            case b"t":
                taken_by(rest)
                return _decode(JOB, "/base", rest).cluster
            case _:
                body = rest.partition(b"\n")[2] if data[:1] == b"p" else rest
                whole = hashlib.sha256(body).hexdigest().encode() + b"\n" + body
                planned_mode(whole)
                plan = OutputPlan.decode(whole)
                if plan is None:
                    return "in part"
                names = [name for file in plan.files for name in (file.directory, file.name)]
                for name in (*names, *plan.replaced, *plan.overwritten, *plan.asides, *plan.markers):
                    assert os.path.normpath(f"/base/{name}").startswith("/base/"), f"{name!r} leads out of the base"
                assert OutputPlan.decode(plan.encode()) == plan
                return "read"

    return feed


def _commit_seeds() -> Sequence[bytes]:
    attempt = ExecutionAttemptId(JOB, VertexId("b" * 32), 0, 7, 0)
    outputs = (OutputDirectory("/base", f"/base/.attempt-{attempt}", "overwrite"),)
    order = claim(CommitOutputs(JOB, 7, VertexId(""), outputs, 3))
    fields: dict[str, Any] = {
        "version": 1,
        "mode": "overwrite",
        "files": {f".attempt-{attempt}": [["part-0.parquet", 12], ["x=1/part-1.parquet", 13]]},
        "replaced": ["old.parquet"],
        "overwritten": ["part-0.parquet"],
        "identities": {f".attempt-{attempt}": [[1, 2], [3, 4]]},
        "asides": ["y.parquet"],
        "markers": ["x=1/_SUCCESS"],
    }
    return [b"o" + order, b"j" + json.dumps(fields).encode(), b't{"cluster":"c","by":"host 1 x"}']


SURFACES = (
    Surface(
        "run-files",
        _begin_run,
        _run_seeds,
        (InvalidInputError, AuthenticationError),
        prefix=1,
        tokens=(b"stated-by ", b"\nreaped\n", b"99999999999 1 1\n", b"4194305 1 1\n"),
    ),
    Surface(
        "commit-files",
        _begin_commits,
        _commit_seeds,
        (InvalidInputError,),
        prefix=1,
        tokens=(b'"../../etc"', b'"/etc"'),
    ),
)
