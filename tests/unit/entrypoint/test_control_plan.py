"""The plan of conf/ over several hosts: its problems, the options of each process, and the missing processes."""

from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.loading import load
from runtime.entrypoint.control.daemon import JOBMANAGER, JOBMASTER, TASKMANAGER, Instance
from runtime.entrypoint.control.hosts import Host, hosts_of
from runtime.entrypoint.control.plan import Planned, make_plan, missing, options_of_next

SEVERAL = (
    "high-availability.type=etcd",
    "high-availability.etcd.endpoints=etcd-1:2379",
    "high-availability.etcd.username=flinklike",
    "high-availability.etcd.password=secret",
    "high-availability.storageDir=/shared/storage",
    "exchange.dir=/shared/exchange",
    "jobmanager.jobmaster.single.enable=true",
    "jobmanager.bind-host=0.0.0.0",
    "jobmanager.jobmaster.bind-host=0.0.0.0",
    "taskmanager.bind-host=0.0.0.0",
)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    (tmp_path / "masters").write_text("master-1:8082\n")
    (tmp_path / "JOB_MASTERS").write_text("master-1\n")
    (tmp_path / "workers").write_text("worker-1\nworker-2\nworker-2\n")
    return Layout(home=tmp_path, conf=tmp_path, run=tmp_path)


def configuration(*dynamic: str) -> Configuration:
    return load(None, environment={}, dynamic=dynamic)


def test_each_process_is_told_the_name_in_its_file(layout: Layout) -> None:
    plan = make_plan(layout, configuration(*SEVERAL))
    assert [one.options() for one in plan] == [
        ("jobmanager.rpc.address=master-1", "rest.address=master-1", "rest.port=8082"),
        ("jobmanager.jobmaster.rpc.address=master-1",),
        ("taskmanager.host=worker-1",),
        ("taskmanager.host=worker-2",),
        ("taskmanager.host=worker-2",),
    ]
    assert Planned(TASKMANAGER, Host("localhost", 0)).options() == ()


@pytest.mark.parametrize(
    ("instead", "key"),
    [
        ("high-availability.storageDir=", "high-availability.storageDir"),
        ("exchange.dir=", "exchange.dir"),
        ("jobmanager.bind-host=127.0.0.1", "jobmanager.bind-host"),
        ("jobmanager.jobmaster.bind-host=127.0.0.1", "jobmanager.jobmaster.bind-host"),
        ("taskmanager.bind-host=localhost", "taskmanager.bind-host"),
    ],
)
def test_what_cannot_work_over_several_hosts_is_refused(layout: Layout, instead: str, key: str) -> None:
    with pytest.raises(InvalidInputError, match=key.replace(".", r"\.")) as caught:
        make_plan(layout, configuration(*SEVERAL, instead))
    assert all(key in problem for problem in caught.value.problems)


def test_localhost_beside_other_hosts_needs_a_name(layout: Layout) -> None:
    (layout.conf / "workers").write_text("localhost\n")
    with pytest.raises(InvalidInputError, match=r"conf/workers names localhost.*taskmanager\.host"):
        make_plan(layout, configuration(*SEVERAL))
    assert make_plan(layout, configuration(*SEVERAL, "taskmanager.host=worker-1"))[-1].host.is_local


def test_the_embedded_etcd_refuses_every_other_host(layout: Layout) -> None:
    embedded = ("high-availability.type=etcd", "high-availability.etcd.embedded=true")
    with pytest.raises(InvalidInputError, match=r"conf/masters names master-1.*this host only") as caught:
        make_plan(layout, configuration(*embedded, *SEVERAL[4:]))
    assert len([one for one in caught.value.problems if "this host only" in one]) == 4


def test_a_missing_file_and_a_bad_line_are_told_together(layout: Layout) -> None:
    (layout.conf / "workers").unlink()
    (layout.conf / "masters").write_text("a b\n")
    with pytest.raises(InvalidInputError) as caught:
        make_plan(layout, configuration(*SEVERAL))
    assert ["workers" in problem or "'a b'" in problem for problem in caught.value.problems] == [True, True]


def running(process: str, address: str = "") -> Instance:
    return Instance(process, "here", 1, address, "running")


def test_what_runs_is_not_started_again() -> None:
    workers = [Planned(TASKMANAGER, Host("localhost", 0))] * 2
    masters = [Planned(JOBMANAGER, Host("localhost", port)) for port in (0, 8082)]
    assert missing([*masters, *workers], []) == [masters[1], masters[0], *workers]
    assert missing(workers, [running("taskmanager")]) == workers[:1]
    assert missing(workers, [running("taskmanager")] * 3) == []
    assert missing(workers, [running("jobmanager")]) == workers
    assert missing(masters, [running("jobmanager", "127.0.0.1:8082")]) == masters[:1]
    assert missing(masters, [running("jobmanager", "127.0.0.1:8081")]) == masters[1:]


def test_job_managers_of_one_host_need_a_rest_port_each(layout: Layout) -> None:
    (layout.conf / "masters").write_text("localhost\nlocalhost:8081\nlocalhost:8082\n")
    (layout.conf / "workers").write_text("localhost\n")
    (layout.conf / "JOB_MASTERS").write_text("localhost\n")
    expected = "names localhost 2 times with REST port 8081: give each line a port of its own, localhost:8082"
    with pytest.raises(InvalidInputError, match=expected):
        make_plan(layout, configuration())
    assert len(make_plan(layout, configuration("rest.port=0"))) > 3
    (layout.conf / "masters").write_text("localhost\nlocalhost:8082\n")
    make_plan(layout, configuration())


def test_one_more_job_manager_takes_the_line_that_nobody_serves(layout: Layout) -> None:
    (layout.conf / "masters").write_text("master-1\nlocalhost:8081\nlocalhost:8082\n")
    (layout.conf / "workers").write_text("localhost:9000\n")
    first, second = (Instance(JOBMANAGER.name, "here", 1, f"127.0.0.1:{port}", "running") for port in (8081, 8082))
    assert options_of_next(JOBMANAGER, layout, []) == ("rest.port=8081",)
    assert options_of_next(JOBMANAGER, layout, [second]) == ("rest.port=8081",)
    assert options_of_next(JOBMANAGER, layout, [first]) == ("rest.port=8082",)
    assert options_of_next(JOBMANAGER, layout, [first, second]) == ()
    assert options_of_next(TASKMANAGER, layout, []) == ()
    (layout.conf / "masters").unlink()
    assert options_of_next(JOBMANAGER, layout, []) == ()


def test_what_a_driver_starts_is_not_planned(layout: Layout) -> None:
    driver = (*SEVERAL, "resourcemanager.driver=process")
    assert {one.kind for one in make_plan(layout, configuration(*driver))} == {JOBMANAGER, JOBMASTER}
    autoscale = (*driver, "jobmanager.jobmaster.autoscale.max=2")
    assert {one.kind for one in make_plan(layout, configuration(*autoscale))} == {JOBMANAGER}


def test_a_driver_of_one_host_is_refused_where_another_host_may_lead(layout: Layout) -> None:
    (layout.conf / "masters").write_text("master-1:8082\nmaster-1:8083\n")
    driver = configuration(*SEVERAL, "resourcemanager.driver=process")
    make_plan(layout, driver)
    (layout.conf / "masters").write_text("master-1:8082\nmaster-2\n")
    make_plan(layout, configuration(*SEVERAL))
    with pytest.raises(InvalidInputError, match="conf/masters names master-1, master-2: a leader could not end"):
        make_plan(layout, driver)


def test_hosts_of_a_driver_are_checked_and_nothing_is_started_there(layout: Layout) -> None:
    plan = make_plan(layout, configuration(*SEVERAL, "resourcemanager.driver=ssh"))
    assert [one.kind for one in plan] == [JOBMANAGER, JOBMASTER]
    with pytest.raises(InvalidInputError, match=r"conf/workers names worker-1, but on taskmanager\.bind-host"):
        make_plan(layout, configuration(*SEVERAL, "resourcemanager.driver=ssh", "taskmanager.bind-host=localhost"))
    (layout.conf / "workers").write_text("localhost\n")
    with pytest.raises(InvalidInputError, match=r"workers names localhost: write the name by which"):
        hosts_of(layout.conf / "workers")
