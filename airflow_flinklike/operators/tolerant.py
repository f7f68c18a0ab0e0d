"""SparkSubmitTolerance: an operator takes the parameters of SparkSubmitOperator that have no effect, and says so."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Mapping
from types import FrameType
from typing import Any

from airflow.sdk import BaseOperator

from airflow_flinklike.airflow_options import given_or_configured
from airflow_flinklike.exceptions import PipelineError
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
        """As of every operator. Parameters without effect are told when the DAG is parsed, as without mapping.

        Airflow makes the operator when the task runs, and gives it the `default_args` then.
        """
        if "resources" in kwargs:  # of the job; Airflow would take them for those of a queue
            kwargs["job_resources"] = kwargs.pop("resources")
        made = super().partial(**kwargs)
        parents = (getattr(made.kwargs.get(one), "default_args", None) or {} for one in ("dag", "task_group"))
        given: dict[str, Any] = {}
        for source in (*parents, defaults_of(kwargs), kwargs):
            given |= source
        task_id = made.kwargs["task_id"]
        chosen = given_or_configured("on_unsupported", given.get("on_unsupported"))
        try:
            _warn(task_id, explanations(given, task_id=task_id, on_unsupported=chosen))
        except PipelineError:
            made._expand_called = True  # noqa: SLF001 - it is refused, and not forgotten, as Airflow would say
            raise
        return made

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
    """Warnings that point at the line of the DAG file, whatever Airflow puts between it and the operator."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_back is not None and _is_of_airflow(frame):
        frame = frame.f_back
    if frame is None:
        return
    for line in lines:
        warnings.warn_explicit(
            f"task {task_id!r}: {line.text}",
            UnsupportedParameterWarning,
            frame.f_code.co_filename,
            frame.f_lineno,
            registry=frame.f_globals.setdefault("__warningregistry__", {}),
        )


def _is_of_airflow(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in {"airflow", "airflow_flinklike"}
