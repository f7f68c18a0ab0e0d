"""Spark environments (R53): the JVM that a job's static Spark conf asks for, its name, and the memory that it takes.

A TaskManager keeps its default environment warm and starts others when jobs ask for static conf that the default one
does not have. An environment is named by that difference, so that jobs with the same difference share it, and
ResourceManager and TaskManager name it alike without a message.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runtime.common.spark_conf import advice, fewest_lacking, is_owned, lacking, normal_value, static_conf

CATALOG, HIVE = "spark.sql.catalogImplementation", "hive"
METASTORES = ("spark.hadoop.hive.metastore.uris", "spark.hadoop.javax.jdo.option.ConnectionURL")
WAREHOUSE = "spark.sql.warehouse.dir"
HEAP = "spark.driver.memory"
OVERHEAD = "spark.driver.memoryOverhead"
OVERHEAD_BYTES_MIN = 512 << 20
"""Classes, compiled code, stacks and buffers of a driver JVM, beside its heap."""
OVERHEAD_FACTOR = 0.1

_KEY_LENGTH = 16
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """One environment: `conf` is what it has beyond the default one of its TaskManager. `key` is "" for the default."""

    key: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)
    heap_bytes: int = 0
    memory_bytes: int = 0

    @property
    def is_default(self) -> bool:
        """True for the one that a TaskManager always has."""
        return not self.key


DEFAULT_ENVIRONMENT = EnvironmentSpec()


@dataclass(frozen=True, slots=True)
class SparkWish:
    """The static Spark conf of one job: `asked` by its conf, and `script`, which the code of its script sets itself.

    What a script sets is fulfilled where that is possible, and elsewhere left to `script.static-conf`.
    """

    job_id: str = ""
    asked: Mapping[str, str] = field(default_factory=dict)
    script: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """True if every Spark will do."""
        return not (self.asked or self.script)


@dataclass(frozen=True, slots=True)
class SparkOffer:
    """What Spark of one TaskManager can be for a job: `conf` is that of its default environment.

    `environment_bytes`: memory for environments that are started on demand, all together; 0: it starts none.
    """

    conf: Mapping[str, str] = field(default_factory=dict)
    environment_bytes: int = 0

    def environment(self, wish: SparkWish) -> EnvironmentSpec:
        """The environment that tasks of the job have here."""
        found = self._spec({**wish.asked, **wish.script}, wish.job_id)
        if wish.script and not self._can_start(found):
            return self._spec(wish.asked, wish.job_id)
        return found

    def can_serve(self, wish: SparkWish) -> bool:
        """True if the default environment has what the job asks for, or one that has it may be started here."""
        return self._can_start(self._spec(wish.asked, wish.job_id))

    def _spec(self, static: Mapping[str, str], job_id: str) -> EnvironmentSpec:
        difference = {key: static[key] for key in lacking(static, self.conf)}
        if not difference:
            return DEFAULT_ENVIRONMENT
        heap = _bytes(difference.get(HEAP, ""), _bytes(self.conf.get(HEAP, ""), 0))
        overhead = _bytes(difference.get(OVERHEAD, ""), overhead_bytes(heap))
        key = environment_key(difference, job_id if has_own_metastore(difference) else "")
        return EnvironmentSpec(key, difference, heap, heap + overhead)

    def _can_start(self, spec: EnvironmentSpec) -> bool:
        is_possible = not _owned(spec.conf) and spec.memory_bytes <= self.environment_bytes
        return spec.is_default or is_possible


def has_own_metastore(conf: Mapping[str, str]) -> bool:
    """True for Hive support without a metastore of the user's: then no other job may see its tables (R22)."""
    return conf.get(CATALOG) == HIVE and not any(key in conf for key in METASTORES)


def _owned(conf: Mapping[str, str]) -> list[str]:
    """The keys that no job can set. With Hive support the place of tables is one of a metastore, and not of a job."""
    return [key for key in conf if is_owned(key) and not (key == WAREHOUSE and conf.get(CATALOG) == HIVE)]


def environment_key(conf: Mapping[str, str], job_id: str = "") -> str:
    """The name of the environment with this conf beyond the default: equal for values that mean the same to Spark.

    With `job_id` no other job has it.
    """
    text = json.dumps([{key: normal_value(value) for key, value in conf.items()}, job_id], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_LENGTH]


def overhead_bytes(heap_bytes: int) -> int:
    """What a driver JVM takes beside a heap of that size, where its conf does not say it."""
    return max(OVERHEAD_BYTES_MIN, math.ceil(heap_bytes * OVERHEAD_FACTOR))


def refused_static_conf(wanted: Mapping[str, str], offers: Sequence[SparkOffer]) -> list[str]:
    """The problems of a job's conf, given what TaskManagers offer.

    Empty when one TaskManager can serve it, and when no TaskManager is registered yet: then the job waits, and is
    checked when one registers.
    """
    wish = SparkWish(asked=static_conf(wanted))
    if wish.is_empty or not offers or any(offer.can_serve(wish) for offer in offers):
        return []
    return why_unserved(wish, offers)


def why_unserved(wish: SparkWish, offers: Sequence[SparkOffer]) -> list[str]:
    """Sentences about static conf that none of the offers can serve."""
    keys = fewest_lacking(wish.asked, [offer.conf for offer in offers])
    starting = [offer for offer in offers if offer.environment_bytes]
    if not starting:
        return [advice(key, wish.asked[key]) for key in keys]
    if owned := _owned({key: wish.asked[key] for key in keys}):
        return [advice(key, wish.asked[key]) for key in owned]
    needed = min(offer.environment(wish).memory_bytes for offer in starting)
    most = max(offer.environment_bytes for offer in starting)
    problem = (
        f"spark_conf {', '.join(keys)}: a Spark environment for the job takes {needed // _MIB} MiB, and TaskManagers "
        f"have at most {most // _MIB} MiB for such: start one with a larger taskmanager.memory.spark.total"
    )
    return [problem]


def _bytes(text: str, default: int) -> int:
    """A size of Spark's: a number alone is in MiB. What is no size is left to Spark, which refuses it."""
    value = normal_value(text)
    if isinstance(value, int):
        return value
    return int(value) * _MIB if value.isdecimal() and len(value) < 12 else default
