"""The Spark conf that a task has, and the Spark environment that it asks for."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_flinklike.api.spark_start import CONF_OF
from airflow_flinklike.migrate.model import Computed, Kind, Origin, Place, says_something
from airflow_flinklike.migrate.parameters import PLACES_OF_DRIVERS, SHIELDED
from airflow_flinklike.migrate.values import has_computed
from runtime.common.spark_conf import WARM_CONF, conf_text, is_static, is_without_effect, static_conf
from runtime.common.spark_environments import HEAP, JARS, EnvironmentSpec, SparkOffer, SparkWish, driver_memory

WARM = {"spark.master": "local[*]", HEAP: "1g", **WARM_CONF}
"""Static conf of the Spark that TaskManagers with the default configuration keep warm."""
WARM_BYTES = sum(driver_memory(WARM))
ENVIRONMENTS_BYTES = 4 << 30
"""What `taskmanager.memory.spark.total` has for environments, beside the warm Spark, unless it is configured."""
OFFER = SparkOffer(WARM, environment_bytes=1 << 60)
NAME_OF_CONF = {Kind.PYSPARK: "config_kwargs"}
"""The parameter that has the conf, where it is not `conf`."""
_OWN_JOB = "the job's own"
_VARIANTS_MAX = 100
_STARTS = {**CONF_OF, "jars": JARS}
_COUNTED = frozenset({"conf", "config_kwargs", *_STARTS})
"""Parameters by which the instances of a mapped task can differ in their environment."""


def confs_of(place: Place) -> Iterator[dict[Any, Any]]:
    """The Spark conf of each instance that may differ: one, or several of a mapped task."""
    mapped = {
        name: given.value if isinstance(given.value, list) else [Computed(name)]
        for name, given in place.parameters.items()
        if given.origin is Origin.MAPPED and name in _COUNTED
    }
    fixed = {
        name: one.value
        for name, one in place.parameters.items()
        if one.origin is not Origin.MAPPED and not is_shielded(place, name)
    }
    dropped = dropped_keys(place)
    variants = itertools.islice(itertools.product(*mapped.values()), _VARIANTS_MAX)
    for variant in variants:
        conf = _conf_of(place.kind, {**fixed, **dict(zip(mapped, variant, strict=True))})
        yield {key: value for key, value in conf.items() if key not in dropped}


def _conf_of(kind: Kind, values: Mapping[str, Any]) -> dict[Any, Any]:
    conf = values.get(NAME_OF_CONF.get(kind, "conf"), values.get("conf"))
    if isinstance(conf, str) and is_conf_text(conf):
        conf = of_conf_text(conf)
    found = dict(conf) if isinstance(conf, dict) else {}
    if kind in {Kind.SPARK_SUBMIT, Kind.LIVY}:
        found |= {key: values[name] for name, key in _STARTS.items() if says_something(values.get(name))}
    return {key: value for key, value in found.items() if value is not None}


def dropped_keys(place: Place) -> list[str]:
    """Keys that the rewrite takes out of a conf that stands in the call as a literal mapping."""
    given = place.parameters.get(NAME_OF_CONF.get(place.kind, "conf"))
    if given is None or given.origin is not Origin.CALL or given.keyword is None:
        return []
    literal = given.keyword.value
    keys = [key.value for key in literal.keys if isinstance(key, ast.Constant)] if isinstance(literal, ast.Dict) else []
    return [key for key in keys if isinstance(key, str) and key in PLACES_OF_DRIVERS and keys.count(key) == 1]


def is_shielded(place: Place, name: str) -> bool:
    """True if `default_args` give a parameter that the task has not had until now."""
    return name in SHIELDED[place.kind] and place.parameters[name].origin is Origin.DEFAULT_ARGS


def literal(conf: Mapping[Any, Any]) -> dict[str, str]:
    return {
        key: conf_text(value)
        for key, value in conf.items()
        if isinstance(key, str) and not has_computed(value) and not is_templated(value)
    }


def effective(conf: Mapping[Any, Any]) -> dict[str, Any]:
    """The static part that has an effect where Spark's tasks run in the driver's JVM."""
    return {
        key: value
        for key, value in conf.items()
        if isinstance(key, str) and is_static(key) and not is_without_effect(key, WARM)
    }


def environment_of(
    conf: Mapping[Any, Any], script: Mapping[str, str], *, is_jar: bool = False
) -> EnvironmentSpec | None:
    """The environment of a task; None if a value of its static conf is known only when the task runs."""
    if any(has_computed(value) or is_templated(value) for value in effective(conf).values()):
        return None
    asked = static_conf(literal(conf))
    script = {key: value for key, value in script.items() if key not in asked}
    return OFFER.environment(SparkWish("a job", asked, script, is_application=is_jar))


def key_of(spec: EnvironmentSpec | None) -> str | None:
    """Its key; "" for the warm one, None where it is not known."""
    return None if spec is None else _OWN_JOB if spec.job_id else spec.key


def is_own(key: str | None) -> bool:
    """True for the key of an environment that each job has for itself."""
    return key == _OWN_JOB


def is_templated(value: Any) -> bool:
    """True for a text with a template of Airflow's in it."""
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def is_conf_text(value: Any) -> bool:
    """True for conf as SparkSqlOperator takes it: `key=value,key=value`."""
    return (
        isinstance(value, str)
        and not is_templated(value)
        and bool(value)
        and all("=" in one for one in value.split(","))
    )


def of_conf_text(value: str) -> dict[str, str]:
    pairs = (one.partition("=") for one in value.split(","))
    return {key.strip(): text.strip() for key, _, text in pairs}


def paths_of(value: Any) -> list[str]:
    """The paths of a list, or of a text with commas."""
    several = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    return [one.strip() for one in several if isinstance(one, str)]
