"""The options of section `[flinklike]` in airflow.cfg: defaults of operators, and how long a cluster is waited for.

The table needs no Airflow, since every Airflow process reads the provider's metadata. A value is read when a task is
made or executed; a parameter of the task wins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from airflow_flinklike.exceptions import PipelineError
from runtime.common.version import VERSION

SECTION = "flinklike"
_NONE = "none"


class Configured(Enum):
    """The default of a parameter for which None has a meaning."""

    DEFAULT = "the value in airflow.cfg"


CONFIGURED: Final = Configured.DEFAULT


@dataclass(frozen=True, slots=True)
class AirflowOption:
    """One option. `kind` is float, integer, boolean or string; `none` says what the text `none` means."""

    kind: str
    default: str
    description: str
    example: str
    none: str = ""
    choices: tuple[str, ...] = ()
    must_be_positive: bool = False

    @property
    def expected(self) -> str:
        """What a value may be, in words."""
        if self.choices:
            return " or ".join(self.choices)
        number = "a number above 0" if self.must_be_positive else "a number, not below 0"
        kinds = {"float": number, "integer": f"{number}, without a fraction", "boolean": "True or False"}
        return kinds[self.kind] + (f", or {_NONE}" if self.none else "")

    def parse(self, text: str) -> Any:
        """The value. Raises ValueError."""
        if self.none and text.lower() in {_NONE, ""}:
            return None
        if self.kind == "boolean":
            return _BOOLEANS[text.lower()] if text.lower() in _BOOLEANS else _refuse(text)
        if self.kind == "string":
            return text if text in self.choices else _refuse(text)
        number = int(text) if self.kind == "integer" else float(text)
        is_good = number > 0 if self.must_be_positive else number >= 0
        return number if is_good and math.isfinite(number) else _refuse(text)


_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}

OPTIONS: Mapping[str, AirflowOption] = {
    "first_contact_timeout": AirflowOption(
        "float",
        "60",
        "Seconds until a task fails whose connection no JobManager has ever answered: its host, port or scheme may be "
        "wrong. Once the cluster has answered, or the task has a job, retry_for holds.",
        "120",
    ),
    "retry_for": AirflowOption(
        "float",
        "3600",
        "Seconds for which a cluster that does not answer any more is asked again, over restarts and failovers, by "
        "tasks and triggers without an execution_timeout.",
        "7200",
    ),
    "poll_interval": AirflowOption(
        "float", "10", "Seconds of one long poll; a change is seen at once.", "5", must_be_positive=True
    ),
    "inline_timeout": AirflowOption(
        "float", "20", "Seconds that a deferrable task waits in the worker before it is deferred.", "60"
    ),
    "orphan_timeout": AirflowOption(
        "float",
        "300",
        "The worker has stopped, and no try adopts the job for so many seconds: the cluster cancels it. none: never.",
        "900",
        none="never",
    ),
    "durable": AirflowOption("boolean", "True", "A retry adopts the job that an earlier try submitted.", "False"),
    "cancel_on_kill": AirflowOption("boolean", "True", "A mark or a clear by a user cancels the job.", "False"),
    "log_limit": AirflowOption(
        "integer", "1000000", "About how many bytes of a job's output the log of its task shows; 0: none.", "100000"
    ),
    "xcom_limit": AirflowOption(
        "integer",
        "49152",
        "The largest size of a job's value as XCom, in bytes. none: unbounded.",
        "1000000",
        none="unbounded",
    ),
    "on_unsupported": AirflowOption(
        "string",
        "warn",
        "What becomes of parameters of SparkSubmitOperator that have no effect: warn tells them, fail refuses the DAG "
        "for those that would change what the job does or may access.",
        "fail",
        choices=("warn", "fail"),
    ),
}


def configured(name: str) -> Any:
    """The value of an option in airflow.cfg or the environment, else its default. Raises PipelineError."""
    from airflow_flinklike.airflow_version import conf  # noqa: PLC0415 - the provider's metadata is read without it

    option = OPTIONS[name]
    text = str(conf.get(SECTION, name, fallback=option.default)).strip()
    try:
        return option.parse(text)
    except ValueError:
        message = f"[{SECTION}] {name} in airflow.cfg is {text!r}: expected {option.expected}"
        raise PipelineError(message) from None


def given_or_configured(name: str, value: Any) -> Any:
    """The parameter of a task, or the configured value for None and for CONFIGURED where None has a meaning."""
    if value is CONFIGURED or (value is None and not OPTIONS[name].none):
        return configured(name)
    return value


def config_section() -> dict[str, Any]:
    """The section, in the form of Airflow's provider_info.schema.json."""
    return {
        "description": "Defaults of tasks that run jobs on a flinklike cluster. Parameters of a task win.",
        "options": {
            name: {
                "description": option.description,
                "version_added": VERSION,
                "type": option.kind,
                "example": option.example,
                "default": option.default,
            }
            for name, option in OPTIONS.items()
        },
    }


def _refuse(text: str) -> Any:
    raise ValueError(text)
