"""What a Spark environment is started with, and the Spark configuration that follows from it.

Precedence: what we must own (OWNED) > the user's `spark.*` keys > our defaults. A user's value for an owned key
is refused by name before anything starts.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtime.common.spark_conf import OF_ENVIRONMENTS, OWNED, WARM_CONF
from runtime.common.spark_environments import (
    HEAP,
    JAVA_OPTIONS,
    WAREHOUSE,
    EnvironmentSpec,
    has_own_metastore,
    size_bytes,
)
from runtime.common.spark_masters import EXPECTED, MasterKind, kind_of
from runtime.taskexecutor.spark_protocol.catalog import catalog_conf
from runtime.taskexecutor.worker_protocol.worker_environment import DAEMON_MODULE, WORKING_DIRECTORY_LINK

WARM_UPS_ON_DEMAND_MAX = 40
_PACKAGES = "spark.jars.packages"
_RETAINED_MAX = "200"
_WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to
_LOOPBACK = "127.0.0.1"
_SECRET_ELSEWHERE = "(in taskmanager.spark.secret-file)"  # noqa: S105 - Spark asks for a value here, and uses another one


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Everything the Spark host needs. Directories are made when missing; times are seconds.

    `bind_address` and `advertised_host` are for executors on other hosts, where these reach the driver; "" = the first
    one, or what Spark finds out where that is a wildcard. Without such executors the driver listens on loopback (R44).
    `secret_file` has the secret that a `spark://` cluster asks for; "" = it asks for none. `warehouse` is where the
    catalog is kept; "" = nowhere. `log_prefix` tells the logs of several TaskManagers in one directory apart.
    `slot_gids`: the group of each slot, where slots are users of their own and this JVM is another one (R50).
    `is_on_demand`: it is one of those that a TaskManager starts for static conf of jobs. `is_of_one_job`: no other job
    has it, so that the job may change what a JVM has once. `has_pages`: people may look at Spark's own pages (R58), at
    `ui_address`, "" = nowhere. `configuration_directories`: those of Hadoop, for a driver that asks YARN.
    """

    master: str
    slots: int
    cores: int
    heap_bytes: int
    work_directory: Path
    cds_directory: Path
    log_directory: Path
    bind_address: str = "127.0.0.1"
    advertised_host: str = ""
    secret_file: str = ""
    network_encryption: bool = False
    log_prefix: str = "spark"
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    warehouse: str = ""
    warm_up_count: int = 200
    class_archive: bool = True
    start_timeout: float = 240.0
    call_timeout: float = 60.0
    close_timeout: float = 5.0
    poll_interval: float = 1.0
    change_timeout: float = 45.0
    slot_gids: tuple[int, ...] = ()
    is_on_demand: bool = False
    is_of_one_job: bool = False
    has_pages: bool = True
    ui_address: str = ""
    configuration_directories: tuple[str, ...] = ()

    def of_environment(self, spec: EnvironmentSpec) -> SparkSettings:
        """The settings of another environment beside this one.

        A key of the job takes the place of the same key here, but Java options come behind those that are here.
        """
        conf = {**self.spark_conf, **spec.conf}
        for key in {*JAVA_OPTIONS} & spec.conf.keys() & self.spark_conf.keys():
            conf[key] = f"{self.spark_conf[key]} {spec.conf[key]}"
        work = self._work_of(spec)
        return dataclasses.replace(
            self,
            heap_bytes=spec.heap_bytes,
            spark_conf=conf,
            work_directory=work,
            log_prefix=f"{self.log_prefix}-{spec.key[:8]}",
            warm_up_count=min(self.warm_up_count, WARM_UPS_ON_DEMAND_MAX),
            warehouse=str(work / "hive") if has_own_metastore({**self.spark_conf, **spec.conf}) else "",
            is_on_demand=True,
            is_of_one_job=bool(spec.job_id),
            ui_address=f"{self.ui_address.rpartition('/')[0]}/{spec.key}" if self.ui_address else "",
        )

    def of_application(self, spec: EnvironmentSpec) -> SparkSettings:
        """The settings of a Java application's room beside this environment, with the job's Java options."""
        options = {key: spec.conf[key] for key in JAVA_OPTIONS if key in spec.conf}
        joined = {key: f"{self.spark_conf.get(key, '')} {value}".strip() for key, value in options.items()}
        return dataclasses.replace(
            self,
            heap_bytes=spec.heap_bytes,
            spark_conf={**self.spark_conf, **spec.conf, **joined},
            work_directory=self._work_of(spec),
            is_on_demand=True,
        )

    def _work_of(self, spec: EnvironmentSpec) -> Path:
        """Beside that of the default environment, which is its account's where slots have users (R50)."""
        return self.work_directory.with_name(f"{self.work_directory.name}-{spec.key}")

    @property
    def is_local(self) -> bool:
        """True if executors live in the driver's JVM."""
        return self.master.startswith("local")

    @property
    def makes_secret(self) -> bool:
        """True if Spark makes the secret of this driver and its executors itself."""
        kind = kind_of(self.master)
        return kind is not None and kind.makes_secrets

    @property
    def is_authenticated(self) -> bool:
        """R44: true if a process that dials the driver has to know its secret."""
        return self.makes_secret or bool(self.secret_file)

    @property
    def listen_address(self) -> str:
        """R44: only this JVM has a reason to dial a driver whose executors are its own threads."""
        return _LOOPBACK if self.is_local else self.bind_address

    @property
    def driver_host(self) -> str:
        """What executors dial; "" = Spark finds out."""
        if self.is_local:
            return _LOOPBACK
        return self.advertised_host or ("" if self.bind_address in _WILDCARDS else self.bind_address)

    def log_file(self, what: str) -> Path:
        """The log of the host or of the JVM."""
        return self.log_directory / f"{self.log_prefix}-{what}.log"

    def problems(self) -> tuple[str, ...]:
        """Everything that is wrong with the user's keys, by name."""
        allowed = OF_ENVIRONMENTS | {WAREHOUSE} if self.is_on_demand else frozenset()
        found = [f"{key}: {reason}" for key, reason in OWNED.items() if key in self.spark_conf and key not in allowed]
        if kind_of(self.master) in {None, MasterKind.CONNECT}:
            found.append(f"spark.master: {self.master}: no master of a driver in this TaskManager: {EXPECTED}")
        if self.slots < 1:
            found.append(f"taskmanager.numberOfTaskSlots: {self.slots}: expected at least 1")
        return tuple(found)

    def to_json(self) -> str:
        """For the Spark host's command line side of the fence; the inverse of `parse`."""
        values = dataclasses.asdict(self)
        return json.dumps({key: str(value) if isinstance(value, Path) else value for key, value in values.items()})

    @classmethod
    def parse(cls, text: str) -> SparkSettings:
        """Settings from `to_json`."""
        values: dict[str, Any] = json.loads(text)
        for name in ("work_directory", "cds_directory", "log_directory"):
            values[name] = Path(values[name])
        for name in ("slot_gids", "configuration_directories"):
            values[name] = tuple(values[name])
        return cls(**values)


def _defaults(settings: SparkSettings) -> dict[str, str]:
    conf = {
        "spark.app.name": "flinklike-taskmanager",
        **WARM_CONF,
        "spark.ui.killEnabled": "false",  # by a GET, which a link of a job could be
        "spark.ui.retainedJobs": _RETAINED_MAX,
        "spark.ui.retainedStages": _RETAINED_MAX,
        "spark.ui.retainedTasks": "10000",
        "spark.sql.ui.retainedExecutions": _RETAINED_MAX,
        "spark.sql.streaming.stopTimeout": "4s",
        # Queries without an interval that have nothing to do look again after it: 10 ms by default, for each of them.
        "spark.sql.streaming.pollingDelay": "500ms",
        # A cancelled task counts as active until its Python worker is killed (R15); Spark waits 2 s by default.
        "spark.python.task.killTimeout": "200ms",
        # Spark's default is the JVM's temporary directory; below ours a socket's name would be too long.
        "spark.python.unix.domain.socket.dir": tempfile.gettempdir(),
        "spark.sql.warehouse.dir": (settings.work_directory / "warehouse").as_uri(),
    }
    if settings.warehouse:
        conf.update(catalog_conf(settings.warehouse, settings.spark_conf))
    if settings.network_encryption:
        # Version 1, Spark's default, proves less about the sender.
        conf["spark.network.crypto.authEngineVersion"] = "2"
    if settings.is_local:
        conf["spark.sql.shuffle.partitions"] = str(max(4, 2 * settings.cores))
    return conf


def effective_conf(settings: SparkSettings) -> dict[str, str]:
    """The complete conf of the driver JVM."""
    conf = _defaults(settings)
    conf.update(settings.spark_conf)
    conf.update(
        {
            "spark.master": settings.master,
            "spark.submit.deployMode": "client",
            HEAP: _heap(settings),
            "spark.driver.bindAddress": settings.listen_address,
            **_authentication(settings),
            "spark.scheduler.mode": "FAIR",
            # Hadoop's Path takes a URI as it is: a blank that is written %20 names another file.
            "spark.scheduler.allocation.file": f"file://{allocation_file(settings)}",
            "spark.local.dir": str(local_directory(settings)),
        }
    )
    if settings.driver_host:
        conf["spark.driver.host"] = settings.driver_host
    if settings.is_on_demand and _PACKAGES in conf:
        conf.setdefault("spark.jars.ivy", str(settings.cds_directory.parent / "ivy"))
    if settings.is_local:
        conf["spark.python.daemon.module"] = DAEMON_MODULE
        # One full stack of a task would end the JVM of all. A full heap does, by an option of Java.
        conf["spark.executor.killOnFatalError.depth"] = "0"
    return conf


def _heap(settings: SparkSettings) -> str:
    """As the job has written it, since its script may read it: "1g" and not "1024m"."""
    asked = settings.spark_conf.get(HEAP, "").strip()
    return asked if size_bytes(asked) == settings.heap_bytes else f"{max(settings.heap_bytes >> 20, 1)}m"


_OF_SHARED_DRIVERS = frozenset(
    {
        "spark.app.name",
        "spark.scheduler.mode",
        "spark.scheduler.allocation.file",
        "spark.sql.warehouse.dir",
        "spark.python.daemon.module",
        "spark.executor.killOnFatalError.depth",
    }
)
"""Conf of a driver that jobs share, which one of an application has as Spark has it."""


def application_conf(settings: SparkSettings, local: Path) -> dict[str, str]:
    """The conf that the driver of a Java application begins with. `local`: where it keeps blocks and shuffle files.

    A catalog of all jobs (`warehouse`) is none of it: one JVM at a time can use that.
    """
    conf = effective_conf(dataclasses.replace(settings, warehouse=""))
    own = {key: value for key, value in conf.items() if key not in _OF_SHARED_DRIVERS}
    return {**own, "spark.local.dir": str(local)}


def _authentication(settings: SparkSettings) -> dict[str, str]:
    """R44. With `local[...]` Spark makes a secret at each start and keeps it in its JVM; with `k8s://` and `yarn` it
    makes one and gives it to its executors.

    With `spark://` it wants to see one in its conf, which every user may read: that of the file takes its place
    elsewhere (`driver.start_driver`).
    """
    conf = {"spark.authenticate": str(settings.is_authenticated).lower()}
    if settings.is_authenticated and not settings.makes_secret:
        conf["spark.authenticate.secret"] = _SECRET_ELSEWHERE
    conf["spark.network.crypto.enabled"] = str(settings.network_encryption).lower()
    if settings.network_encryption:
        conf["spark.network.crypto.saslFallback"] = "false"
    return conf


def crash_file(settings: SparkSettings) -> Path:
    """Where the JVM writes its report when it crashes; the next crash takes its place."""
    return settings.log_file("jvm-crash")


def local_directory(settings: SparkSettings) -> Path:
    """Where Spark keeps blocks and shuffle files."""
    return settings.work_directory / "spark-local"


def sessions_directory(settings: SparkSettings) -> Path:
    """Where the temporary files of sessions lie, one directory each."""
    return (settings.work_directory.parent if settings.slot_gids else settings.work_directory) / "sessions"


def temporary_directory(settings: SparkSettings) -> Path:
    """What Java calls so: Spark's `artifacts-*`, and libraries that Java unpacks. A killed JVM cannot tidy up."""
    return settings.work_directory / "tmp"


def session_directory(settings: SparkSettings, tag: str) -> Path:
    """Temporary files of one session's Python side."""
    return sessions_directory(settings) / f"pyspark-{tag}"


def working_directory_link(settings: SparkSettings, tag: str) -> Path:
    """Leads to the working directory of the session's job, once there is one (R24)."""
    return session_directory(settings, tag) / WORKING_DIRECTORY_LINK


def allocation_file(settings: SparkSettings) -> Path:
    """The FAIR pools: fixed names, because Spark never removes a pool and warns about unknown ones."""
    return settings.work_directory / "fair-pools.xml"


def pool_name(slot_index: int, shares: int = 1) -> str:
    """The FAIR pool of a slot, or of one with further ones, which comes into being with its first session (D-141)."""
    return f"slot-{slot_index}" if shares == 1 else f"slot-{slot_index}-x{shares}"


HOST_POOL = "host"
SLOT_WEIGHT = 4
"""Of a slot's pool."""


def allocations(slots: int) -> str:
    """Content of the allocation file: equal pools, one per slot, and a light one for our own queries."""
    pools = [(HOST_POOL, 1), ("default", 1), *((pool_name(index), SLOT_WEIGHT) for index in range(slots))]
    rows = [
        f'  <pool name="{name}"><schedulingMode>FIFO</schedulingMode><weight>{weight}</weight>'
        "<minShare>0</minShare></pool>"
        for name, weight in pools
    ]
    return "\n".join(['<?xml version="1.0"?>', "<allocations>", *rows, "</allocations>", ""])
