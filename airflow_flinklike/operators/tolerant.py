"""SparkSubmitTolerance: an operator takes the parameters of SparkSubmitOperator that have no effect, and says so."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import Any

from airflow.sdk import BaseOperator

from airflow_flinklike.airflow_options import given_or_configured
from airflow_flinklike.operators.spark_parameters import (
    UNSUPPORTED,
    Explanation,
    UnsupportedParameterWarning,
    explanations,
)


class SparkSubmitTolerance(BaseOperator):
    """Takes what has no effect here. A subclass calls `explain` when the task is executed.

    Airflow applies `default_args`, and accepts names in `.partial()`, by the signatures of `__init__` only. So the
    names of the table UNSUPPORTED stand in this one.

    :param on_unsupported: 'warn': a line in the task's log, and a warning when the DAG is parsed, for each parameter
        that has no effect; 'fail': the DAG is refused for those that would change what the job does or may access
    """

    def __init__(
        self,
        *,
        on_unsupported: str | None = None,
        proxy_user: Any = None,
        keytab: Any = None,
        principal: Any = None,
        use_krb5ccache: Any = None,
        post_submit_commands: Any = None,
        driver_cores: Any = None,
        deploy_mode: Any = None,
        master: Any = None,
        spark_binary: Any = None,
        verbose: Any = None,
        track_driver_via_k8s_api: Any = None,
        yarn_track_via_application_status: Any = None,
        status_poll_interval: Any = None,
        **kwargs: Any,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in UNSUPPORTED}
        # Airflow's `resources` are those of a queue: it would make such of the job's, from `default_args` too.
        super().__init__(**{"resources": None, **kwargs})
        self.on_unsupported: str = given_or_configured("on_unsupported", on_unsupported)
        self._explanations: tuple[Explanation, ...] = ()
        self.tell_when_executed(*explanations(given, task_id=self.task_id, on_unsupported=self.on_unsupported))

    @classmethod
    def partial(cls, **kwargs: Any) -> Any:
        """As of every operator. Parameters without effect are told when the DAG is parsed, as without mapping."""
        task_id = str(kwargs.get("task_id", ""))
        chosen = given_or_configured("on_unsupported", kwargs.get("on_unsupported"))
        _warn(task_id, explanations(kwargs, task_id=task_id, on_unsupported=chosen))
        if "resources" in kwargs:  # of the job; Airflow would take them for those of a queue
            kwargs["job_resources"] = kwargs.pop("resources")
        return super().partial(**kwargs)

    def tell_when_executed(self, *lines: Explanation) -> None:
        """Warn now, and have `explain` log these lines."""
        self._explanations += lines
        _warn(self.task_id, lines)

    def explain(self) -> None:
        """Log one line for each parameter without effect; as a warning where the job would be another one with it."""
        for line in self._explanations:
            self.log.log(logging.WARNING if line.changes_job else logging.INFO, "%s", line.text)


def defaults_of(kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `default_args` of the DAG, the task groups and the task, in what Airflow passes to an `__init__`."""
    found: Mapping[str, Any] = kwargs.get("default_args") or {}
    return found


def _warn(task_id: str, lines: tuple[Explanation, ...]) -> None:
    for line in lines:
        warnings.warn(f"task {task_id!r}: {line.text}", UnsupportedParameterWarning, stacklevel=3)
