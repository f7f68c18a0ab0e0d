"""Scenarios of a whole Airflow that kill shared processes, or measure seconds. Each runs alone."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tests.kit.airflow.pair import AirflowPair, Case, Scenario
from tests.kit.airflow.rest import PATIENCE
from tests.kit.host.levels import reached

CANCEL_SECONDS = 10.0
DOWN_SECONDS = 30.0
INSISTING_SECONDS = 75.0
"""`orphan_timeout` of the insisting DAG."""


def triggerer_killed(pair: AirflowPair, name: str) -> None:
    """One job ends while no process waits for it, the other one later."""
    with pair.case(f"{name}_1", "deferred") as one, pair.case(f"{name}_2", "deferred") as two:
        for case in (one, two):
            case.waits()
        pair.airflow.kill("triggerer", with_children=True)
        try:
            one.open()
            one.wait_jobs("FINISHED")
        finally:
            pair.airflow.start("triggerer")
        one.succeeds("FINISHED", tries=1)
        assert two.job_states() == ["RUNNING"]
        two.open()
        two.succeeds("FINISHED", tries=1)


def triggerer_restarted(pair: AirflowPair, name: str) -> None:
    """The restart must not cancel a job."""
    with pair.case(name, "deferred") as case:
        case.waits()
        pair.airflow.restart("triggerer")
        assert case.job_states() == ["RUNNING"]
        case.open()
        case.succeeds("FINISHED", tries=1)


def _cancelled_in_time(case: Case) -> None:
    begin = time.time()
    case.run.mark("failed")
    case.wait_jobs("CANCELED")
    assert case.jobs()[0]["end-time"] / 1000 - begin < CANCEL_SECONDS


def _triggerer_of(case: Case) -> int:
    """The id of the triggerer that has the trigger; 0 without one."""
    return int((case.run.task()["triggerer_job"] or {"id": 0})["id"])


def marked_in_a_fresh_triggerer(pair: AirflowPair, name: str) -> None:
    """The triggerer has just taken the trigger over, and asks Airflow for the first time."""
    with pair.case(name, "deferred") as case:
        case.works()
        before = reached(lambda: _triggerer_of(case), "a triggerer has the trigger", timeout=PATIENCE)
        pair.airflow.restart("triggerer")
        reached(lambda: _triggerer_of(case) not in {0, before}, "another triggerer has the trigger", timeout=PATIENCE)
        _cancelled_in_time(case)
        assert "does not say why" not in case.run.log()


def marks_cancel_in_time(pair: AirflowPair, name: str) -> None:
    """Within 10 s of the click: alone, since it takes two seconds of a machine that does nothing else."""
    with pair.case(f"{name}_1", "inline") as inline, pair.case(f"{name}_2", "deferred") as deferred:
        for case in (inline, deferred):
            case.waits()
        for case in (inline, deferred):
            _cancelled_in_time(case)


def scheduler_killed(pair: AirflowPair, name: str) -> None:
    """The next scheduler does not know the workers of the first one, so Airflow starts their tasks again beside the old
    ones.

    An old worker promises a heartbeat when the new one has adopted the job already; the new one withdraws it (D-035).
    """
    with pair.case(f"{name}_1", "insisting") as inline, pair.case(f"{name}_2", "deferred") as deferred:
        for case in (inline, deferred):
            case.waits()
        pair.airflow.kill("scheduler", with_children=False)
        pair.airflow.start("scheduler")
        inline.run.wait_task("running", try_number=2, timeout=180)
        inline.says("Adopting job")
        inline.goes_on(INSISTING_SECONDS + 15)
        for case in (inline, deferred):
            case.open()
        inline.succeeds("FINISHED", tries=2)
        deferred.succeeds("FINISHED", tries=1)


def _members_killed(role: str) -> Scenario:
    def scenario(pair: AirflowPair, name: str) -> None:
        with pair.case(f"{name}_1", "deferred") as deferred, pair.case(f"{name}_2", "inline") as inline:
            for case in (deferred, inline):
                case.waits()
            pair.kill_members(role)
            pair.start_members(role)
            for case in (deferred, inline):
                case.open()
                case.succeeds("FINISHED", tries=1)

    return scenario


def cluster_down_at_submit(pair: AirflowPair, name: str) -> None:
    with pair.case(name, "inline", stop_at=["stored"], is_open=True) as case:
        case.stopped_at("stored")
        pair.kill_members("jobmanager")
        try:
            until = time.monotonic() + DOWN_SECONDS
            case.go_on_from("stored")
            reached(lambda: time.monotonic() > until, "it is down for a while", timeout=2 * DOWN_SECONDS)
        finally:
            pair.start_members("jobmanager")
        case.succeeds("FINISHED", tries=1)


ALONE_SHORT: Mapping[str, Scenario] = {
    "triggerer_killed": triggerer_killed,
    "job_masters_killed": _members_killed("jobmaster"),
}
ALONE_LONG: Mapping[str, Scenario] = {
    "triggerer_restarted": triggerer_restarted,
    "marks_cancel_in_time": marks_cancel_in_time,
    "marked_in_a_fresh_triggerer": marked_in_a_fresh_triggerer,
    "scheduler_killed": scheduler_killed,
    "job_managers_killed": _members_killed("jobmanager"),
    "cluster_down_at_submit": cluster_down_at_submit,
}
