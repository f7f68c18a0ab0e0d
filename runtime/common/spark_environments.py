"""Spark environments (R53): the JVM that a job's static Spark conf asks for, its name, and the memory that it takes.

A TaskManager keeps its default environment warm and starts others when jobs ask for static conf that the default one
does not have. An environment is named by that difference, so that jobs with the same difference share it, and
ResourceManager and TaskManager name it alike without a message.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from runtime.common.spark_conf import (
    ISOLATION,
    JVM,
    advice,
    fewest_lacking,
    is_owned,
    lacking,
    normal_value,
    static_conf,
)

CATALOG, HIVE = "spark.sql.catalogImplementation", "hive"
METASTORES = (
    "spark.hadoop.hive.metastore.uris",
    "spark.hive.metastore.uris",
    "spark.hadoop.javax.jdo.option.ConnectionURL",
)
WAREHOUSE = "spark.sql.warehouse.dir"
HEAP = "spark.driver.memory"
JARS = "spark.jars"
_JAR_OF_JOB = "blob:"
JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
STATIC_CONF_LENGTH_MAX = 200_000
OVERHEAD = "spark.driver.memoryOverhead"
OVERHEAD_BYTES_MIN = 512 << 20
"""Classes, compiled code, stacks and buffers of a driver JVM, beside its heap."""
OVERHEAD_FACTOR = "spark.driver.memoryOverheadFactor"
OVERHEAD_FACTOR_DEFAULT = 0.1
HEAP_BYTES_MIN = 512 << 20
"""Spark starts with no less."""

_SIZES = {
    HEAP: HEAP_BYTES_MIN,
    OVERHEAD: 0,
    "spark.executor.memory": 0,
    "spark.executor.memoryOverhead": 0,
    "spark.executor.pyspark.memory": 0,
}
"""Keys with sizes, and the least that each can be. Those of executors are read also where they have no effect."""
_COUNTS = ("spark.executor.cores", "spark.executor.instances", "spark.cores.max")

_KEY_LENGTH = 16
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """One environment: `conf` is what it has beyond the default one of its TaskManager. `key` is "" for the default.

    `is_application`: memory for a Java application, which starts its JVM itself, below its slot. `job_id`: the one job
    that has it, and with which it ends; "" for one that jobs share.
    """

    key: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)
    heap_bytes: int = 0
    memory_bytes: int = 0
    is_application: bool = False
    job_id: str = ""

    @property
    def is_default(self) -> bool:
        """True for the one that a TaskManager always has."""
        return not self.key


DEFAULT_ENVIRONMENT = EnvironmentSpec()


class DriverMemory(NamedTuple):
    """The memory of a driver JVM, in bytes."""

    heap: int
    overhead: int


@dataclass(frozen=True, slots=True)
class SparkWish:
    """The static Spark conf of one job: `asked` by its conf, and `script`, which the code of its script sets itself.

    What a script sets is fulfilled where that is possible, and elsewhere left to `script.static-conf`. A Java
    application (`is_application`) needs room for a JVM of its own, whatever its conf is.
    """

    job_id: str = ""
    asked: Mapping[str, str] = field(default_factory=dict)
    script: Mapping[str, str] = field(default_factory=dict)
    is_application: bool = False

    @property
    def is_empty(self) -> bool:
        """True if every Spark will do."""
        return not (self.asked or self.script or self.is_application)


@dataclass(frozen=True, slots=True)
class SparkOffer:
    """What Spark of one TaskManager can be for a job: `conf` is that of its default environment, or, where each job has
    a JVM of its own (`taskmanager.slot.isolation`), what each begins with.

    `environment_bytes`: memory for environments that are started on demand, all together; 0: it starts none.
    `accounts`: where slots are users of their own (R50), the users that such environments can have, of which each has
    one; elsewhere 0, and memory alone bounds them.
    """

    conf: Mapping[str, str] = field(default_factory=dict)
    environment_bytes: int = 0
    accounts: int = 0

    @property
    def starts_applications(self) -> bool:
        """False where a Java application would run as a user without a name, with which Hadoop does not start."""
        return bool(self.environment_bytes) and not self.accounts

    @property
    def room_options(self) -> str:
        """The options that bound its environments."""
        return f"taskmanager.memory.spark.total{', accounts of taskmanager.spark.user' if self.accounts else ''}"

    def has_room_beside(self, others: Collection[int], memory_bytes: int) -> bool:
        """True if an environment of that memory can be started beside others, of which the memory is given."""
        has_account = not self.accounts or len(others) < self.accounts
        return has_account and sum(others) + memory_bytes <= self.environment_bytes

    @property
    def default_memory(self) -> DriverMemory:
        """The memory of the default environment."""
        return driver_memory(self.conf)

    def environment(self, wish: SparkWish) -> EnvironmentSpec:
        """The environment that tasks of the job have here: with all that its script sets, if that is possible."""
        if wish.is_empty and not is_isolated(self.conf):
            return DEFAULT_ENVIRONMENT
        if wish.is_application:
            return self._application(wish)
        for script in _as_much_as_possible(wish):
            found = self._spec({**wish.asked, **script}, wish)
            if self._can_start(found):
                return found
        return self._spec(wish.asked, wish)

    def can_serve(self, wish: SparkWish) -> bool:
        """True if the default environment has what the job asks for, or one that has it may be started here."""
        if wish.is_application:
            return self.starts_applications and self._can_start(self._application(wish))
        return self._can_start(self._spec(wish.asked, wish))

    def fulfils(self, wish: SparkWish) -> bool:
        """True if it can serve the job with all that its script sets too."""
        if wish.is_application:
            return self.can_serve(wish)
        return self._can_start(self._spec({**wish.asked, **_settable(wish)}, wish))

    def _spec(self, static: Mapping[str, str], wish: SparkWish) -> EnvironmentSpec:
        difference = {key: static[key] for key in lacking(static, self.conf)}
        if not (difference or is_isolated(self.conf)):
            return DEFAULT_ENVIRONMENT
        if is_hive(static):  # the catalog of the default one is its own
            difference[CATALOG] = HIVE
        conf = {**self.conf, **difference}
        heap, overhead = driver_memory(conf)
        owner = wish.job_id if is_isolated(conf) or has_own_metastore(conf) else ""
        key = environment_key(difference, owner)
        return EnvironmentSpec(key, difference, heap, heap + overhead, job_id=owner)

    def _application(self, wish: SparkWish) -> EnvironmentSpec:
        """Its memory is its driver's; nothing of it is shared, so the key is of one job."""
        conf = {**self.conf, **wish.asked}
        heap, overhead = driver_memory(conf)
        key = environment_key(wish.asked, wish.job_id or "application")
        return EnvironmentSpec(key, dict(wish.asked), heap, heap + overhead, is_application=True, job_id=wish.job_id)

    def _can_start(self, spec: EnvironmentSpec) -> bool:
        is_possible = not _owned(spec.conf) and spec.memory_bytes <= self.environment_bytes
        return spec.is_default or is_possible


def _settable(wish: SparkWish) -> dict[str, str]:
    """What a script sets, without what no job can set or no Spark can read."""
    owned = _owned({**wish.asked, **wish.script})
    unreadable = [problem.key for problem in _problems(wish.script)]
    return {key: value for key, value in wish.script.items() if key not in (*owned, *unreadable)}


def _as_much_as_possible(wish: SparkWish) -> Iterator[Mapping[str, str]]:
    """The parts of what a script sets, the largest first: all, and all but the sizes that may not fit."""
    script = _settable(wish)
    if script:
        yield script
    if script.keys() & {HEAP, OVERHEAD}:
        yield {key: value for key, value in script.items() if key not in {HEAP, OVERHEAD}}


def is_isolated(conf: Mapping[str, str]) -> bool:
    """True for conf of a JVM that only one job has."""
    return conf.get(ISOLATION, "").strip() == JVM


def has_own_metastore(conf: Mapping[str, str]) -> bool:
    """True for Hive support without a metastore of the user's: then no other job may see its tables (R22)."""
    return is_hive(conf) and not any(_names_metastore(conf.get(key, "")) for key in METASTORES)


def is_hive(conf: Mapping[str, str]) -> bool:
    """True for a conf with Hive support."""
    return conf.get(CATALOG, "").strip().lower() == HIVE


def _names_metastore(value: str) -> bool:
    """Derby's database is used by one JVM at a time, so that of the default environment is none for another one."""
    return bool(value.strip()) and not value.strip().startswith("jdbc:derby:")


def _owned(conf: Mapping[str, str]) -> list[str]:
    """The keys that no job can set. With Hive support the place of tables is one of a metastore, and not of a job."""
    return [key for key in conf if is_owned(key) and not (key == WAREHOUSE and is_hive(conf))]


def environment_key(conf: Mapping[str, str], job_id: str = "") -> str:
    """The name of the environment with this conf beyond the default: equal for values that mean the same to Spark.

    With `job_id` no other job has it.
    """
    text = json.dumps([{key: normal_value(value) for key, value in conf.items()}, job_id], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_LENGTH]


def driver_memory(conf: Mapping[str, str]) -> DriverMemory:
    """The memory of a JVM that is started with this conf."""
    heap = size_bytes(conf.get(HEAP, "")) or 0
    return DriverMemory(heap, overhead_bytes(heap, conf))


def overhead_bytes(heap_bytes: int, conf: Mapping[str, str]) -> int:
    """What a driver JVM takes beside a heap of that size, by the keys of its conf and by default as Spark counts."""
    named = size_bytes(conf.get(OVERHEAD, ""))
    if named is not None:
        return named
    try:
        factor = float(conf.get(OVERHEAD_FACTOR, OVERHEAD_FACTOR_DEFAULT))
    except ValueError:
        factor = OVERHEAD_FACTOR_DEFAULT
    return max(OVERHEAD_BYTES_MIN, math.ceil(heap_bytes * factor)) if 0 <= factor <= 100 else OVERHEAD_BYTES_MIN


class _Problem(NamedTuple):
    key: str
    sentence: str


def _problems(conf: Mapping[str, str]) -> Iterator[_Problem]:
    """Values by which memory is shared out, and which must be what Spark reads; and values that no start can carry."""
    for key in JAVA_OPTIONS:
        if "-Xmx" in conf.get(key, ""):
            yield _Problem(key, f"spark_conf {key}: -Xmx is not for Java options: use {HEAP}")
    size_all = sum(len(key) + len(value) for key, value in conf.items())
    if size_all > STATIC_CONF_LENGTH_MAX:
        sentence = f"spark_conf: its static keys have {size_all} characters, at most {STATIC_CONF_LENGTH_MAX} can be"
        yield from (_Problem(key, sentence) for key in sorted(conf, key=lambda key: len(conf[key]))[-1:])
    if ISOLATION in conf and not is_isolated(conf):
        sentence = f"spark_conf {ISOLATION}: {conf[ISOLATION][:80]!r}: expected {JVM}, for a JVM of the job alone"
        yield _Problem(ISOLATION, sentence)
    for key, least in _SIZES.items():
        text = conf.get(key)
        size = None if text is None else size_bytes(text)
        if text is not None and (size is None or size < least):
            at_least = f" of at least {least // _MIB}m" if least else ""
            sentence = f"spark_conf {key}: {text[:80]!r}: expected a size{at_least}, such as 3g or 1500m"
            yield _Problem(key, sentence)
    for key in _COUNTS:
        count = conf.get(key, "1").strip()
        if not (count.isascii() and count.isdecimal()):
            yield _Problem(key, f"spark_conf {key}: {count[:80]!r}: expected a number, such as 4")


def with_jars(static: Mapping[str, str], jars: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Static conf with the jars that a job brings along, (sha256, file name), behind those that its conf names.

    Jobs with the same content share an environment. `jar_paths` gives the paths.
    """
    if not jars:
        return dict(static)
    named = [static[JARS]] if static.get(JARS) else []
    return {**static, JARS: ",".join([*named, *(f"{_JAR_OF_JOB}{sha256}/{name}" for sha256, name in jars)])}


def jar_paths(conf: Mapping[str, str], directory: str) -> dict[str, str]:
    """Conf with the paths of jars that jobs have brought along, which lie in `directory` by sha256 and name."""
    if JARS not in conf:
        return dict(conf)
    jars = (jar.strip() for jar in conf[JARS].split(","))
    paths = (f"{directory}/{jar.removeprefix(_JAR_OF_JOB)}" if jar.startswith(_JAR_OF_JOB) else jar for jar in jars)
    return {**conf, JARS: ",".join(filter(None, paths))}


def jars_of_jobs(conf: Mapping[str, str]) -> set[str]:
    """The sha256 of each jar in the conf that a job has brought along."""
    jars = (jar.strip() for jar in conf.get(JARS, "").split(","))
    return {jar.removeprefix(_JAR_OF_JOB).partition("/")[0] for jar in jars if jar.startswith(_JAR_OF_JOB)}


def refused_static_conf(
    wanted: Mapping[str, str],
    offers: Sequence[SparkOffer],
    *,
    jars: Sequence[tuple[str, str]] = (),
    is_application: bool = False,
) -> list[str]:
    """The problems of a job's conf, and of jars (sha256, name) that it brings, given what TaskManagers offer.

    Empty when one TaskManager can serve it, and when no TaskManager is registered yet: then the job waits, and is
    checked when one registers.
    """
    if jars_of_jobs(wanted):
        return [f"spark_conf {JARS}: {_JAR_OF_JOB} is no scheme of files: give jars of the client as jars of the job"]
    wish = SparkWish(asked=with_jars(static_conf(wanted), jars), is_application=is_application)
    if problems := [problem.sentence for problem in _problems(wish.asked)]:
        return problems
    if wish.is_empty or not offers or any(offer.can_serve(wish) for offer in offers):
        return []
    return why_unserved(wish, offers)


def why_unserved(wish: SparkWish, offers: Sequence[SparkOffer]) -> list[str]:
    """Sentences about static conf that none of the offers can serve."""
    keys = fewest_lacking(wish.asked, [offer.conf for offer in offers])
    starting = [offer for offer in offers if offer.environment_bytes]
    if wish.is_application and starting and not any(offer.starts_applications for offer in starting):
        return [_NAMELESS]
    if not starting:
        return [_NO_APPLICATIONS] if wish.is_application else [_unserved(key, wish.asked[key]) for key in keys]
    if owned := _owned({key: wish.asked[key] for key in (wish.asked if wish.is_application else keys)}):
        return [advice(key, wish.asked[key]) for key in owned]
    needed = min(offer.environment(wish).memory_bytes for offer in starting)
    most = max(offer.environment_bytes for offer in starting)
    what = "the JVM of the application" if wish.is_application else "a Spark environment for the job"
    problem = (
        f"spark_conf {', '.join(keys) or HEAP}: {what} takes {needed // _MIB} MiB, and TaskManagers "
        f"have at most {most // _MIB} MiB for such: start one with a larger taskmanager.memory.spark.total"
    )
    return [problem]


def _unserved(key: str, value: str) -> str:
    """A sentence about a key that asks for an environment, where no TaskManager starts one."""
    if key == JARS and jars_of_jobs({JARS: value}):
        return f"jars: {_NO_ENVIRONMENTS}"
    if key == ISOLATION:
        return f"spark_conf {ISOLATION}: {_NO_ENVIRONMENTS}"
    return advice(key, value)


_NO_ENVIRONMENTS = (
    "no TaskManager starts a JVM for a job: taskmanager.memory.spark.total leaves nothing for it, or slots have users "
    "of their own (taskmanager.slots.uids), and taskmanager.spark.user names no further account"
)
_NAMELESS = (
    "a Java application runs as the user of its slot, and where slots have users of their own (taskmanager.slots.uids) "
    "these have no name, without which Hadoop does not start: run it on a TaskManager without that option"
)
_NO_APPLICATIONS = f"a Java application needs a JVM of its own, and {_NO_ENVIRONMENTS}"


def size_bytes(text: str) -> int | None:
    """A size as Spark reads it, a number alone in MiB; None for what is no size."""
    value = normal_value(text)
    if isinstance(value, int):
        return value
    return int(value) * _MIB if value.isdecimal() and value.isascii() and len(value) < 12 else None
