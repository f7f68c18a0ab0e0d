"""FlinklikeSqlOperator runs SQL statements on the cluster, and returns rows or writes a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_flinklike.api.function import function_job
from airflow_flinklike.api.job_program import JobProgram
from airflow_flinklike.api.sql_job import SqlStatements
from airflow_flinklike.api.sql_text import split_statements as split
from airflow_flinklike.exceptions import PipelineError
from airflow_flinklike.operators.base import FlinklikeJobOperator
from airflow_flinklike.operators.fields import JOB_FIELDS, JobFields, one_of
from airflow_flinklike.operators.resources import resources_of
from airflow_flinklike.operators.tolerant import defaults_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from runtime.jobgraph.graph import ResourceSpec
    from runtime.jobgraph.restart_strategy import RestartStrategy

_MODES = ("append", "overwrite", "error", "errorifexists", "ignore")


class FlinklikeSqlOperator(JobFields, FlinklikeJobOperator):
    """Run SQL on a warm slot. The XCom has the rows of the last statement, as lists, or the name of the written table.

    It replaces SparkSqlOperator, whose parameters have the same names, and reads like SQLExecuteQueryOperator. Dates
    and decimals are texts in the XCom, binaries hexadecimal texts, structs objects. Rows that take more than
    `xcom_limit` fail the job; with `do_xcom_push=False` statements run and no row is fetched.

    :param sql: a statement, or several, with `;` between them or as a list; a text that ends with .sql or .hql is the
        path of a template file
    :param parameters: values of the parameters in the statements: by name (`:day`), or of the markers (`?`) of a single
        statement
    :param split_statements: split texts at `;`, True by default; False: each text is one statement
    :param return_last: rows of the last statement only; False: a list with the rows of each statement
    :param write_to: the table that gets the rows of the last statement; there are no rows in the XCom then
    :param mode: of the table that exists: 'append', 'overwrite', 'ignore' or 'error', the default

    The other parameters are those of FlinklikeSubmitOperator.
    """

    template_fields: Collection[str] = (
        "sql",
        "parameters",
        "write_to",
        "mode",
        "name",
        *JOB_FIELDS,
        "flinklike_conn_id",
    )
    template_ext: Sequence[str] = (".sql", ".hql", ".json.j2")
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "sql": "sql",
        "parameters": "json",
        "conf": "json",
        "environment": "json",
        "job_resources": "json",
        "configuration": "json",
    }

    def __init__(
        self,
        *,
        sql: str | Sequence[str],
        parameters: Mapping[str, Any] | Sequence[Any] | None = None,
        split_statements: bool = True,
        return_last: bool = True,
        write_to: str | None = None,
        mode: str = "error",
        name: str | None = None,
        conf: Mapping[str, Any] | str | None = None,
        properties_file: str | None = None,
        packages: str | None = None,
        exclude_packages: str | None = None,
        repositories: str | None = None,
        driver_memory: str | None = None,
        driver_class_path: str | None = None,
        executor_memory: str | None = None,
        executor_cores: int | str | None = None,
        num_executors: int | str | None = None,
        total_executor_cores: int | str | None = None,
        yarn_queue: str | None = None,
        py_files: str | Sequence[str] | None = None,
        files: str | Sequence[str] | None = None,
        archives: str | Sequence[str] | None = None,
        jars: str | Sequence[str] | None = None,
        env_vars: Mapping[str, Any] | str | None = None,
        environment: Mapping[str, Any] | str | None = None,
        job_timeout: float | str | timedelta | None = None,
        secrets: str | Sequence[str] | None = None,
        restart_strategy: RestartStrategy | str | None = None,
        user_failures: str | None = None,
        resources: ResourceSpec | Mapping[str, Any] | str | None = None,
        job_resources: ResourceSpec | Mapping[str, Any] | str | None = None,
        spark_profile: str | None = None,
        configuration: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        given = locals()
        super().__init__(**kwargs)
        self.keep_fields(given)
        self.sql = sql
        self.parameters = parameters
        self.split_statements = split_statements
        self.return_last = return_last
        self.write_to = write_to
        self.mode = mode
        self.name = name
        self.conf = conf
        self.environment = one_of(self.task_id, defaults_of(kwargs), env_vars=env_vars, environment=environment)
        self.job_resources = one_of(self.task_id, defaults_of(kwargs), resources=resources, job_resources=job_resources)

    def build_program(self, context: Context) -> JobProgram:
        """The job of the rendered statements. Raises PipelineError."""
        return function_job(
            self._statements(),
            name=self.name or f"{self.dag_id}.{self.task_id}",
            conf=self.spark_conf(),
            resources=resources_of(self.job_resources, self.spark_profile),
            **self.job_options(dict(context.get("params") or {})),
        ).build()

    def _statements(self) -> SqlStatements:
        texts = [self.sql] if isinstance(self.sql, str) else list(self.sql)
        found = [one for text in texts for one in (split(text) if self.split_statements else [text]) if one.strip()]
        if not found:
            message = f"task {self.task_id!r}: sql has no statement"
            raise PipelineError(message)
        if self.mode not in _MODES:
            message = f"task {self.task_id!r}: mode is {self.mode!r}, expected one of {', '.join(_MODES)}"
            raise PipelineError(message)
        if self.write_to and not self.return_last:
            message = f"task {self.task_id!r}: write_to takes the rows of the last statement: leave return_last out"
            raise PipelineError(message)
        values = self.parameters
        if values and not isinstance(values, Mapping) and len(found) > 1:
            message = (
                f"task {self.task_id!r}: values of markers belong to one statement: name the parameters of several"
            )
            raise PipelineError(message)
        return SqlStatements(
            tuple(found),
            dict(values) if isinstance(values, Mapping) else list(values or ()),
            self.write_to or "",
            self.mode,
            self.return_last,
            self.xcom_limit if self.do_xcom_push else 0,
        )
