"""Options of spark-submit of `flinklike run`: those that stand for Spark conf, and what to do instead of the others."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow_flinklike.api.properties_file import parse_properties
from airflow_flinklike.api.spark_start import CONF_OF, SET_AT_START
from airflow_flinklike.exceptions import PipelineError

_USER = "jobs run as the TaskManagers' user: --secret gives a job a credential of the TaskManagers"

CONF_OF_OPTIONS: Mapping[str, str] = {
    **{f"--{name.replace('_', '-')}": key for name, key in CONF_OF.items() if name != "yarn_queue"},
    "--driver-java-options": "spark.driver.extraJavaOptions",
    "--driver-library-path": "spark.driver.extraLibraryPath",
}
"""Option -> the key of Spark's conf that it stands for."""

PROPERTIES_FILE = "--properties-file"

INSTEAD: Mapping[str, str] = {
    **{f"--{name.replace('_', '-')}": instead for name, instead in SET_AT_START.items()},
    "--master": "leave it out: --address names the cluster, whose TaskManagers have the master (spark.master)",
    "--remote": "leave it out: --address names the cluster",
    "--deploy-mode": "leave it out: the driver always is in a TaskManager",
    "--load-spark-defaults": "name each setting in --conf key=value",
    "--proxy-user": _USER,
    "--principal": _USER,
    "--keytab": _USER,
    "--supervise": "use --restart-strategy and --user-failures",
    "--kill": "use `flinklike cancel JOB`",
    "--status": "use `flinklike status JOB`",
    "--verbose": "leave it out: what the job writes is shown anyway",
}
"""Option -> what to do, in one sentence."""


def as_conf_options(args: Sequence[str], options_with_value: frozenset[str]) -> list[str]:
    """The arguments of `flinklike run` with `--conf` in the place of options that stand for Spark conf.

    As with spark-submit, such an option wins over `--conf`, which wins over the properties file. `options_with_value`
    are flinklike's own: what follows one is its value. Only what stands before the target is looked at. Raises
    PipelineError for a value that lacks, and for a properties file that cannot be read; keys there that are none of
    Spark's are told and ignored, as by spark-submit.
    """
    before: list[str] = []
    own: list[str] = []
    behind: list[str] = []
    rest = [*args]
    while rest and rest[0].startswith("-") and rest[0] != "--":
        option, equals, value = rest.pop(0).partition("=")
        if option not in CONF_OF_OPTIONS and option != PROPERTIES_FILE:
            own.append(option + equals + value)
            if option in options_with_value and not equals and rest:
                own.append(rest.pop(0))
            continue
        if not equals:
            if not rest:
                message = f"Option '{option}' requires an argument"
                raise PipelineError(message)
            value = rest.pop(0)
        if option == PROPERTIES_FILE:
            for key, text in _properties(value).items():
                before += ["--conf", f"{key}={text}"]
        else:
            behind += ["--conf", f"{CONF_OF_OPTIONS[option]}={value}"]
    return [*before, *own, *behind, *rest]


def _properties(path: str) -> dict[str, str]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        message = f"{PROPERTIES_FILE} {path} cannot be read: {error}"
        raise PipelineError(message) from error
    found, others = parse_properties(text)
    if others:
        sys.stderr.write(f"note: {PROPERTIES_FILE} {path}: ignored, as none of Spark's: {', '.join(others)}\n")
    return found
