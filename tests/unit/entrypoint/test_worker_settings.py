"""From options to what a driver is told: bounds that follow from others, and options without an effect (R65)."""

from __future__ import annotations

import math
from contextlib import nullcontext

import pytest

from runtime.common.errors import InvalidInputError
from runtime.config.configuration import Configuration
from runtime.config.loading import load
from runtime.entrypoint.control.daemon import JOBMASTER, TASKMANAGER, DaemonKind
from runtime.entrypoint.drivers.choice import elsewhere_problems, port_problem
from runtime.entrypoint.job_manager_options import job_master_worker_settings, worker_options, worker_settings
from runtime.entrypoint.process_options import cores
from runtime.gateways.resource_manager import ResourceProfile

DRIVER = "resourcemanager.driver=process"
DOCKER = ("resourcemanager.driver=docker", "high-availability.cluster-id=sales")
SSH = "resourcemanager.driver=ssh"
AUTOSCALE = (
    DRIVER,
    "high-availability.type=etcd",
    "high-availability.etcd.embedded=true",
    "jobmanager.jobmaster.single.enable=true",
    "jobmanager.jobmaster.autoscale.max=3",
)


def loaded(*dynamic: str) -> Configuration:
    return load(None, environment={}, dynamic=dynamic)


def test_without_a_driver_there_are_none() -> None:
    assert worker_settings(loaded()) is None


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ((), 2 * cores()),
        (("taskmanager.numberOfTaskSlots=1000",), 1000),
        (("slotmanager.number-of-slots.min=1000",), 1000),
        (("taskmanager.numberOfTaskSlots=4", "slotmanager.number-of-slots.max=7"), 7),
    ],
)
def test_the_maximum_is_that_of_the_host_where_none_is_set(options: tuple[str, ...], most: int) -> None:
    settings = worker_settings(loaded(DRIVER, *options))
    assert settings is not None
    assert settings.slots_max == most


def test_the_maximum_over_ssh_is_that_of_all_lines() -> None:
    settings = worker_settings(loaded(SSH, "taskmanager.numberOfTaskSlots=3"), places=5)
    assert settings is not None
    assert settings.slots_max == 15


REACHED = (
    "jobmanager.bind-host=0.0.0.0",
    "taskmanager.bind-host=0.0.0.0",
    "high-availability.type=etcd",
    "high-availability.etcd.endpoints=one:2379",
    "high-availability.etcd.allow-unauthenticated=true",
    "high-availability.storageDir=/shared/storage",
    "exchange.dir=/shared/exchange",
)


@pytest.mark.parametrize("driver", [DOCKER, (SSH,)])
@pytest.mark.parametrize(
    ("instead", "words"),
    [
        ("jobmanager.bind-host=127.0.0.1", "do not reach the JobManager at jobmanager.bind-host: 127.0.0.1"),
        ("high-availability.storageDir=", "set high-availability.storageDir"),
        ("exchange.dir=", "set exchange.dir"),
    ],
)
def test_what_keeps_task_managers_elsewhere_from_working_is_said(
    driver: tuple[str, ...], instead: str, words: str
) -> None:
    assert list(elsewhere_problems(loaded(*driver, *REACHED))) == []
    (problem,) = elsewhere_problems(loaded(*driver, *REACHED, instead))
    assert words in problem


def test_with_the_network_of_the_host_loopback_is_reached() -> None:
    own = "resourcemanager.docker.network=host"
    assert list(elsewhere_problems(loaded(*DOCKER, *REACHED, own, "jobmanager.bind-host=127.0.0.1"))) == []


def test_task_managers_over_ssh_listen_where_others_reach_them() -> None:
    (problem,) = elsewhere_problems(loaded(SSH, *REACHED, "taskmanager.bind-host=127.0.0.1"))
    assert "no other host reaches TaskManagers at taskmanager.bind-host: 127.0.0.1: set that to 0.0.0.0" in problem


@pytest.mark.parametrize(
    ("options", "is_refused"),
    [
        ((DRIVER,), True),
        ((*DOCKER, "resourcemanager.docker.network=host"), True),
        (DOCKER, False),
        ((SSH,), False),
        ((DRIVER, "slotmanager.number-of-slots.max=1"), False),
    ],
)
def test_task_managers_of_one_host_do_not_share_a_port(options: tuple[str, ...], *, is_refused: bool) -> None:
    several = ("taskmanager.numberOfTaskSlots=1", "slotmanager.number-of-slots.max=2", "taskmanager.rpc.port=6122")
    said = port_problem(loaded(*several, *options))
    assert said.startswith("taskmanager.rpc.port: 6122 is for one process of a host") is is_refused
    assert port_problem(loaded(*several[:2], *options)) == ""


@pytest.mark.parametrize(
    ("source", "host", "is_refused"),
    [
        ("/var/run/docker.sock", "unix:///var/run/docker.sock", True),
        ("/run/../run/docker.sock", "tcp://one:1", True),
        ("/", "unix:///var/run/docker.sock", True),
        ("/srv", "unix:///srv/d.sock", True),
        ("/srv/data", "unix:///srv/d.sock", False),
        ("run", "unix:///var/run/docker.sock", False),
    ],
)
def test_no_job_gets_the_socket_of_the_daemon(source: str, host: str, *, is_refused: bool) -> None:
    options = [*DOCKER, f"resourcemanager.docker.volumes={source}:/x:ro", f"resourcemanager.docker.host={host}"]
    if host.startswith("tcp"):
        options.append("resourcemanager.docker.certificates=/certs")
    words = f"{source} would give containers the socket of the daemon"
    with pytest.raises(InvalidInputError, match=words) if is_refused else nullcontext():
        loaded(*options)


def test_a_maximum_below_one_task_manager_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"is less than one TaskManager's 4 slots"):
        worker_settings(loaded(DRIVER, "taskmanager.numberOfTaskSlots=4", "slotmanager.number-of-slots.max=3"))


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("slotmanager.redundant-taskmanager-num=2", "redundant-taskmanager-num: 2 takes 2 TaskManagers of 4 slots"),
        ("slotmanager.number-of-slots.min=5", "number-of-slots.min: 5 takes 2 TaskManagers of 4 slots"),
    ],
)
def test_what_the_maximum_never_allows_is_not_promised(option: str, words: str) -> None:
    own = (DRIVER, "taskmanager.numberOfTaskSlots=4", option)
    with pytest.raises(InvalidInputError, match=f"{words} .*, and slotmanager.number-of-slots.max is 7"):
        worker_settings(loaded(*own, "slotmanager.number-of-slots.max=7"))
    assert worker_settings(loaded(*own, "slotmanager.number-of-slots.max=8"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("slotmanager.number-of-slots.max=4",), "has no effect with resourcemanager.driver: standalone"),
        (("resourcemanager.taskmanager-timeout=1 min",), "has no effect with resourcemanager.driver: standalone"),
        ((DRIVER, "slotmanager.number-of-slots.min=5", "slotmanager.number-of-slots.max=4"), "is above"),
        (("resourcemanager.driver=yarn",), "process"),
        ((DRIVER, "rest.addresses=one:8081,two:8081"), "works with JobManagers on one host, .* names one, two"),
        ((DOCKER[0],), "docker needs high-availability.cluster-id, a name of this cluster alone"),
        ((*DOCKER, "resourcemanager.docker.host=tcp://one:2376"), "needs resourcemanager.docker.certificates"),
        (
            (*DOCKER, "resourcemanager.docker.certificates=/certs"),
            "no effect with resourcemanager.docker.host: unix",
        ),
        ((*DOCKER, "resourcemanager.docker.host=one:2376"), "tcp://host:port"),
        ((*DOCKER, "resourcemanager.docker.volumes=data"), "expected volume:/path"),
        ((*DOCKER, "resourcemanager.docker.volumes=data:path"), "expected volume:/path"),
        ((*DOCKER, "resourcemanager.docker.environment=HOME"), "expected NAME=value"),
        (
            (*DOCKER, "resourcemanager.docker.environment=A=1, FLINKLIKE_RUN_DIR=/x"),
            "FLINKLIKE_RUN_DIR is the driver's",
        ),
        ((*DOCKER, "high-availability.type=etcd", "high-availability.etcd.embedded=true"), "does not reach it"),
        ((SSH, "high-availability.type=etcd", "high-availability.etcd.embedded=true"), "does not reach it"),
        ((*DOCKER, "resourcemanager.ssh.timeout=1 s"), "ssh.timeout has no effect with resourcemanager.driver: docker"),
        ((SSH, "resourcemanager.docker.image=x"), "docker.image has no effect with resourcemanager.driver: ssh"),
        ((DRIVER, "resourcemanager.docker.cpus=1"), "docker.cpus has no effect with resourcemanager.driver: process"),
        (("resourcemanager.docker.cpus=1",), "docker.cpus has no effect with resourcemanager.driver: standalone"),
        (("jobmanager.jobmaster.autoscale.min=1",), "has no effect without jobmanager.jobmaster.autoscale.max"),
        ((DRIVER, "jobmanager.jobmaster.autoscale.jobs-per-process=9"), "has no effect without"),
        ((*AUTOSCALE, "resourcemanager.driver=standalone"), "autoscale.max has no effect without a driver"),
        ((*AUTOSCALE, "jobmanager.jobmaster.single.enable=false"), "JobMasters run inside the JobManager"),
        ((*AUTOSCALE, "jobmanager.jobmaster.autoscale.min=4"), "autoscale.min: 4 is above"),
        ((*AUTOSCALE, "jobmanager.jobmaster.capacity=50"), "200 is more than one process takes"),
        ((*AUTOSCALE, "jobmanager.jobmaster.rpc.port=6200"), "6200 is for one process of a host"),
        ((SSH, "env.ssh.opts=-o ProxyCommand='a b"), "env.ssh.opts: .* quotes in pairs: No closing quotation"),
    ],
)
def test_what_contradicts_itself_is_refused(options: tuple[str, ...], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        loaded(*options)


GPU = "resourcemanager.profiles.gpu."
GPU_LABEL = f"{GPU}taskmanager.labels=gpu:a100"
LARGE = "resourcemanager.profiles.large."


def test_a_profile_changes_the_options_that_it_names() -> None:
    own = (DRIVER, "taskmanager.numberOfTaskSlots=2", "taskmanager.memory.task.size=2 gb", "spark.ui.enabled=false")
    settings = worker_settings(
        loaded(*own, GPU_LABEL, f"{LARGE}taskmanager.memory.task.size=8 gb", f"{LARGE}taskmanager.numberOfTaskSlots=1")
    )
    assert settings is not None
    plain, gpu, large = settings.all_profiles
    cores_each = cores() / 2
    assert (plain.name, plain.slots, plain.slot) == ("", 2, ResourceProfile(cores_each, 1 << 30))
    assert (gpu.name, gpu.slots, gpu.slot) == ("gpu", 2, ResourceProfile(cores_each, 1 << 30, labels=("gpu=a100",)))
    assert (large.name, large.slots, large.slot) == ("large", 1, ResourceProfile(cores(), 8 << 30))


def test_cores_of_other_hosts_are_not_known_before_a_task_manager_is_there() -> None:
    settings = worker_settings(loaded(SSH, GPU_LABEL), places=3)
    assert settings is not None
    assert [one.slot.cpu_cores for one in settings.all_profiles] == [math.inf, math.inf]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((f"{GPU}taskmanager.numberOfTaskSlots=4",), "no job would ever have it started"),
        ((f"{GPU}taskmanager.memory.task.size=1 gb",), "no job would ever have it started"),
        (
            (GPU_LABEL, f"{GPU}taskmanager.numberOfTaskSlots=5", "slotmanager.number-of-slots.max=4"),
            "gpu: its TaskManagers have 5 slots, and slotmanager.number-of-slots.max leaves 4",
        ),
        (
            (GPU_LABEL, "slotmanager.number-of-slots.max=4", "slotmanager.number-of-slots.min=3"),
            "slotmanager.number-of-slots.max leaves 0 beside those that",
        ),
        (
            (GPU_LABEL, "slotmanager.number-of-slots.max=4", "slotmanager.redundant-taskmanager-num=2"),
            "slotmanager.number-of-slots.max leaves 0 beside those that",
        ),
        (
            (GPU_LABEL, f"{GPU}taskmanager.memory.spark.total=512 mb"),
            "resourcemanager.profiles.gpu: taskmanager.memory.spark.total",
        ),
    ],
)
def test_a_profile_that_nothing_would_ever_start_is_refused(options: tuple[str, ...], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        worker_settings(loaded(DRIVER, "taskmanager.numberOfTaskSlots=2", *options))


def test_a_profile_with_another_spark_may_be_as_small_as_the_cluster_s_own() -> None:
    settings = worker_settings(loaded(DRIVER, "resourcemanager.profiles.lean.spark.executor.cores=1"))
    assert settings is not None
    assert [one.name for one in settings.profiles] == ["lean"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((GPU_LABEL,), "gpu: nothing starts TaskManagers with resourcemanager.driver: standalone"),
        ((DRIVER, f"{GPU}taskmanager.host=one"), "expected resourcemanager.profiles.<name>.<option>, .*labels"),
        ((DRIVER, "resourcemanager.profiles.GPU.taskmanager.labels=gpu:a100"), "a name of small letters"),
        ((DRIVER, f"{GPU}taskmanager.labels=gpu"), "'gpu'"),
        ((DRIVER, "resourcemanager.profiles.default.taskmanager.labels=a:b"), "the cluster's own configuration"),
        ((DRIVER, GPU_LABEL, f"{GPU}resourcemanager.docker.memory=1 gb"), "has no effect with resourcemanager.driver"),
        ((DRIVER, f"{GPU}spark.authenticate.secret=x"), "shows a secret to every user of a host"),
    ],
)
def test_what_a_profile_cannot_have_is_refused(options: tuple[str, ...], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        loaded(*options)


def test_more_profiles_than_anybody_needs_are_refused() -> None:
    many = [f"resourcemanager.profiles.p{number}.taskmanager.labels=a:b" for number in range(51)]
    with pytest.raises(InvalidInputError, match="there are 51 profiles, the limit is 50"):
        loaded(DRIVER, *many)


def test_a_task_manager_of_a_profile_reads_the_same_configuration() -> None:
    own = (DRIVER, GPU_LABEL, "resourcemanager.profiles.lean.taskmanager.labels=gpu:a100,zone:b")
    assert loaded(*own, "taskmanager.labels=gpu:a100", "taskmanager.worker-id=w-0123456789ab-gpu").profiles


def test_job_master_processes_are_started_where_a_maximum_is_set() -> None:
    assert job_master_worker_settings(loaded(DRIVER)) is None
    made = job_master_worker_settings(
        loaded(*AUTOSCALE, "jobmanager.jobmaster.autoscale.min=1", "jobmanager.jobmaster.autoscale.event-loop-lag=2 s")
    )
    assert made is not None
    assert (made.minimum, made.maximum, made.jobs, made.lag_max) == (1, 3, 200, 2.0)


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        (TASKMANAGER, (), []),
        (TASKMANAGER, ("jobmanager.rpc.address=one",), ["taskmanager.host=one"]),
        (TASKMANAGER, ("jobmanager.rpc.address=one", "taskmanager.host=two"), []),
        (JOBMASTER, ("jobmanager.rpc.address=one",), ["jobmanager.jobmaster.rpc.address=one"]),
    ],
)
def test_what_a_driver_starts_is_reached_where_its_job_manager_is(
    kind: DaemonKind, options: tuple[str, ...], told: list[str]
) -> None:
    assert list(worker_options(loaded(*options), kind, ["rest.port=1"])) == ["rest.port=1", *told]
