"""A whole Airflow beside a whole cluster, and cases: runs of one task, whose job a test holds, releases and counts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from airflow_flinklike.client import FlinklikeClient
from tests.chaos.members import ChaosCluster
from tests.kit.airflow.rest import PATIENCE, AirflowRest, Run
from tests.kit.airflow.standalone import AirflowStandalone
from tests.kit.cluster.script_cluster import ROOT
from tests.kit.host.levels import reached

CASES = ROOT / "tests" / "airflow" / "dag_cases" / "standalone_cases.py"
WARM_UP_FILE = ROOT / "tests" / "airflow" / "dag_cases" / "warm_up.py"
WITHOUT_SPARK = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "16"}
ANSWER = 42
WARM_UP = "warm_up"


class AirflowPair:
    """`airflow standalone` with a connection to a split cluster of two JobManagers; a context manager."""

    def __init__(
        self,
        folder: Path,
        *,
        files: Iterable[Path] = (CASES,),
        options: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        programs: Path | None = None,
    ) -> None:
        self.folder = folder
        self.cluster = ChaosCluster(WITHOUT_SPARK if options is None else options, masters=2, job_masters=2, workers=1)
        self._files = [WARM_UP_FILE, *files]
        self._environment = dict(environment or {})
        self._programs = programs
        self._resources = ExitStack()
        self._restarts = threading.Lock()

    def __enter__(self) -> Self:
        """Both start at once, since each of them mostly waits."""
        with ExitStack() as stack:
            self.airflow = AirflowStandalone(
                self._files, {**self._connection(), **self._environment}, programs=self._programs
            )
            stack.callback(self.airflow.stop)
            self.airflow.begin()
            stack.enter_context(self.cluster)
            self.airflow.wait_healthy()
            self.rest = AirflowRest(self.airflow.url)
            stack.callback(self.rest.close)
            self._warm_up()
            self._resources = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._resources.close()

    def _warm_up(self) -> None:
        """Run a first task: on a busy machine its worker may time out while Airflow loads."""
        self.rest.wait_for_dag(WARM_UP)
        self.rest.trigger(WARM_UP, WARM_UP).wait("success")

    def _connection(self) -> dict[str, str]:
        document = {
            "conn_type": "flinklike",
            "host": ",".join(f"127.0.0.1:{port}" for port in self.cluster.ports),
            "extra": {"token_file": str(self.cluster.run / "run" / "token")},
        }
        return {"AIRFLOW_CONN_FLINKLIKE_DEFAULT": json.dumps(document)}

    @contextmanager
    def case(self, name: str, dag_id: str, *, stop_at: Iterable[str] = (), is_open: bool = False) -> Any:
        """Trigger a run with this unique name."""
        folder = self.folder / name
        folder.mkdir()
        if is_open:
            (folder / "open").touch()
        self.rest.wait_for_dag(dag_id)
        run = self.rest.trigger(dag_id, name, {"folder": str(folder), "stop_at": list(stop_at)})
        with self.cluster.connect() as client:
            made = Case(self, run, folder, client)
            try:
                yield made
            except AssertionError as error:
                error.add_note(made.story())
                raise
            finally:
                made.let_go()

    # --- what happens to the cluster ----------------------------------------------------------------------

    def kill_members(self, role: str) -> int:
        """Send SIGKILL to every process of a role. Returns their number."""
        members = self.cluster.members(role)
        for member in members:
            member.send(signal.SIGKILL)
        reached(lambda: not self.cluster.members(role), f"every {role} is dead")
        return len(members)

    def start_members(self, role: str) -> None:
        """Start the missing processes of a role."""
        with self._restarts:
            for _ in range(self.cluster.missing().get(role, 0)):
                done = asyncio.run(self.cluster.start_one(role))
                assert done.returncode == 0, done.stderr


@dataclass(frozen=True, slots=True)
class Case:
    """One run with its jobs."""

    pair: AirflowPair
    run: Run
    folder: Path
    client: FlinklikeClient

    # --- the task's processes -----------------------------------------------------------------------------

    def task_processes(self) -> list[tuple[int, int, int]]:
        """Try, pid and the supervisor's pid of every process that has run the task."""
        return [(int(one), int(two), int(three)) for one, two, three in _lines(self.folder / "tasks")]

    def stopped_at(self, step: str) -> int:
        """The pid of the task's process, which waits at this step."""
        file = self.folder / f"at-{step}"
        reached(file.exists, f"{self.run.run_id} stops at {step}", timeout=PATIENCE)
        return int(file.read_text().split()[0])

    def go_on_from(self, step: str) -> None:
        """Let the task go on from this step."""
        (self.folder / f"go-{step}").touch()

    def kill_task(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal the process that runs the task now."""
        os.kill(self.task_processes()[-1][1], number)

    def end_worker(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Signal the supervisor of the task, as an evicted pod is signalled."""
        os.kill(self.task_processes()[-1][2], number)

    # --- its jobs -----------------------------------------------------------------------------------------

    def jobs(self) -> list[dict[str, Any]]:
        """Every job of this run that the cluster has seen, in the order of their starts."""
        names = {self.folder.name, f"{self.run.dag_id}.{self.run.task_id}"}
        found = [one for one in self.client.get("/jobs/overview")["jobs"] if one["name"] in names]
        return sorted(found, key=lambda one: int(one["start-time"]))

    def job_states(self) -> list[str]:
        """The ids of these jobs."""
        return [str(one["state"]) for one in self.jobs()]

    def ledger(self) -> list[str]:
        """What jobs say that they do: `begins`, `ends`, `fails`, `stops`."""
        return [what for what, _ in _lines(self.folder / "ledger")]

    def works(self, jobs: int = 1, timeout: float = PATIENCE) -> str:
        """Wait until the code of so many jobs has begun. Returns the id of the last job."""
        reached(lambda: self.ledger().count("begins") >= jobs, f"{self.run.run_id} works", timeout=timeout)
        return [job_id for what, job_id in _lines(self.folder / "ledger") if what == "begins"][-1]

    def waits(self) -> None:
        """Wait until the job runs, and the task waits in the worker or, if the DAG says so, in the triggerer."""
        self.works()
        if self.run.dag_id == "deferred":
            self.run.wait_task("deferred")

    def open(self) -> None:
        """Let the jobs end."""
        (self.folder / "open").touch()

    def fail(self) -> None:
        """Let the running job fail."""
        (self.folder / "fail").touch()

    def make_run_again(self) -> None:
        """Trigger a run of the same name after a deletion, without stops."""
        self.pair.rest.trigger(self.run.dag_id, self.run.run_id, {"folder": str(self.folder)})

    def let_go(self) -> None:
        """Release everything that waits, so that a failed case does not block others."""
        for step in self.folder.glob("at-*"):
            self.go_on_from(step.name.removeprefix("at-"))
        self.open()

    def story(self) -> str:
        """A description of the case for a failure message."""
        try:
            return f"{self.ledger()} {self.jobs()}\n{self.run.story()}"
        except Exception as error:  # noqa: BLE001 - whatever it is, it does not hide what the case came to
            return f"{self.ledger()}, and then {error!r}"

    # --- checks of every case -----------------------------------------------------------------------------

    def wait_jobs(self, *states: str, timeout: float = PATIENCE) -> None:
        """Wait until there are exactly these jobs, in this order."""
        reached(lambda: self.job_states() == [*states], f"{self.run.run_id}: jobs {states}", timeout=timeout)

    def succeeds(self, *states: str, tries: int | None = None) -> None:
        """Check that the run succeeds in its last try, with these jobs, never two at once, and the last value as XCom.

        `tries` counts those that have reached our code. A busy Airflow may add tries: its worker timed out, or a
        deferral ended before the scheduler had recorded its beginning.
        """
        assert self.run.wait(timeout=2 * PATIENCE) == "success", self.run.tries()
        jobs = self.jobs()
        assert [one["state"] for one in jobs] == [*states]
        for one, next_one in pairwise(jobs):
            assert one["end-time"] <= next_one["start-time"], "two jobs ran at once"
        assert self.ledger().count("begins") == len(jobs)
        last = jobs[-1]["jid"]
        assert self.run.xcom() == {"answer": ANSWER, "job": last}
        assert self.run.xcom("job_id") == last
        seen = len({number for number, _, _ in self.task_processes()})
        assert tries is None or tries <= seen <= tries + self.run.state_mismatches(), seen

    def goes_on(self, seconds: float) -> None:
        """Check that the job runs on meanwhile."""
        until = time.monotonic() + seconds
        reached(lambda: time.monotonic() > until, "time passes", timeout=2 * seconds)
        assert self.job_states() == ["RUNNING"]

    def says(self, text: str) -> None:
        """Check that the task's log has this text."""
        reached(lambda: text in self.run.log(), f"{self.run.run_id}: its log has {text!r}", timeout=PATIENCE)


Scenario = Callable[[AirflowPair, str], None]


class Scenarios:
    """Runs many scenarios at once, each in a thread; `result` is that of one scenario."""

    def __init__(self, pair: AirflowPair, scenarios: Mapping[str, Scenario], *, at_once: int) -> None:
        self._pool = ThreadPoolExecutor(at_once)
        self._futures: dict[str, Future[None]] = {
            name: self._pool.submit(scenario, pair, name) for name, scenario in scenarios.items()
        }

    def result(self, name: str) -> None:
        """Wait for the scenario, and raise its AssertionError if it failed."""
        self._futures[name].result()

    def close(self) -> None:
        """Cancel scenarios that have not begun, and wait for the others."""
        self._pool.shutdown(cancel_futures=True)


def _lines(file: Path) -> list[list[str]]:
    """The words of each whole line."""
    if not file.exists():
        return []
    text = file.read_text(encoding="utf-8")
    return [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
