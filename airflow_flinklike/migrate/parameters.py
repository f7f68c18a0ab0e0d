"""Parameters of the operators that are left: what each is on the cluster."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_flinklike.api.spark_start import CONF_OF
from airflow_flinklike.migrate.model import Kind
from airflow_flinklike.operators.spark_parameters import UNSUPPORTED

_OF_AIRFLOW = """
task_id owner email email_on_retry email_on_failure retries retry_delay retry_exponential_backoff
max_retry_delay retry_policy start_date end_date depends_on_past ignore_first_depends_on_past
wait_for_past_depends_before_skipping wait_for_downstream dag params default_args priority_weight weight_rule
queue pool pool_slots sla execution_timeout on_execute_callback on_failure_callback on_success_callback
on_retry_callback on_skipped_callback pre_execute post_execute trigger_rule resources run_as_user
map_index_template max_active_tis_per_dag max_active_tis_per_dagrun executor executor_config do_xcom_push
multiple_outputs inlets outlets task_group doc doc_md doc_json doc_yaml doc_rst task_display_name logger_name
allow_nested_operators render_template_as_native_obj
"""
OF_AIRFLOW = frozenset(_OF_AIRFLOW.split())
"""Parameters of every operator. They stay as they are."""

_CONNECTION = "the connection names the cluster"
_EXECUTORS = ("executor_memory", "executor_cores", "num_executors", "total_executor_cores", "yarn_queue")
_NOTHING = "no spark-submit is started"
INSTEAD = {name: one.instead for name, one in UNSUPPORTED.items()}
_NOTHING_STARTED = {name: INSTEAD.get(name, _NOTHING) for name in ("spark_binary", "verbose", "master")}
_OF_LINEAGE = ("openlineage_inject_parent_job_info", "openlineage_inject_transport_info")
_OPENLINEAGE = "the cluster's jobs tell OpenLineage by themselves"
_USER = "jobs run as the TaskManagers' user; a job gets credentials by secrets="
_USER_PARAMETERS = dict.fromkeys(("keytab", "principal", "proxy_user", "use_krb5ccache"), _USER)

KEPT: Mapping[Kind, frozenset[str]] = {
    Kind.SPARK_SUBMIT: frozenset(
        {"application", "application_args", "conf", "py_files", "files", "archives", "name", "env_vars", "durable"}
        | {"properties_file", "java_class", "jars", *CONF_OF}
    ),
    Kind.PYSPARK: frozenset({"config_kwargs", "templates_dict", "templates_exts"}),
    Kind.SPARK_SQL: frozenset({"sql", "conf", "name"}),
    Kind.LIVY: frozenset(
        {"conf", "py_files", "files", "archives", "name", "driver_memory", "executor_memory", "executor_cores"}
        | {"num_executors", "deferrable", "jars"}
    ),
}
"""Parameters that mean the same there."""

RENAMED: Mapping[Kind, Mapping[str, str]] = {
    Kind.SPARK_SUBMIT: {"reconnect_on_retry": "durable"},
    Kind.PYSPARK: {},
    Kind.SPARK_SQL: {},
    Kind.LIVY: {"file": "application", "args": "application_args", "class_name": "java_class", "queue": "yarn_queue"},
}
"""Parameters that have another name there."""

DROPPED: Mapping[Kind, Mapping[str, str]] = {
    Kind.SPARK_SUBMIT: {
        **_NOTHING_STARTED,
        **{
            name: INSTEAD.get(name, _NOTHING)
            for name in (
                "deploy_mode",
                "driver_cores",
                "status_poll_interval",
                "track_driver_via_k8s_api",
                "yarn_track_via_application_status",
            )
        },
        "openlineage_inject_parent_job_info": _OPENLINEAGE,
        "openlineage_inject_transport_info": _OPENLINEAGE,
    },
    Kind.PYSPARK: {},
    Kind.SPARK_SQL: {
        **_NOTHING_STARTED,
        **dict.fromkeys(_EXECUTORS, "executors are the cluster's"),
    },
    Kind.LIVY: {
        "livy_conn_auth_type": _CONNECTION,
        "livy_endpoint_prefix": _CONNECTION,
        "extra_headers": "no request goes to Livy",
        "retry_args": "a cluster that does not answer is asked again until execution_timeout",
        "driver_cores": INSTEAD.get("driver_cores", _NOTHING),
        "openlineage_inject_parent_job_info": _OPENLINEAGE,
        "openlineage_inject_transport_info": _OPENLINEAGE,
    },
}
"""Parameters without a meaning there, with what happens instead."""

_TOLERATED = frozenset({*UNSUPPORTED, *CONF_OF, *_OF_LINEAGE, "reconnect_on_retry"})
TOLERATED: Mapping[Kind, frozenset[str]] = {
    Kind.SPARK_SUBMIT: _TOLERATED,
    Kind.PYSPARK: frozenset(),
    Kind.SPARK_SQL: _TOLERATED,
    Kind.LIVY: _TOLERATED,
}
"""Parameters that the operators of the cluster take nevertheless: where they cannot be taken out, they may stay."""

HOLDING: Mapping[Kind, Mapping[str, str]] = {
    Kind.SPARK_SUBMIT: {
        **_USER_PARAMETERS,
        "post_submit_commands": "use on_success_callback, or a task downstream",
    },
    Kind.PYSPARK: {
        "python_callable": "it is not a function of the file",
        "op_args": "arguments are given in the call",
        "op_kwargs": "arguments are given in the call",
    },
    Kind.SPARK_SQL: _USER_PARAMETERS,
    Kind.LIVY: {
        "proxy_user": _USER,
        "extra_options": "they are for Livy alone: name each as a parameter, or take it out",
    },
}
"""Parameters that hold a task back, with why, unless their value is None, False or ""."""

NEW: Mapping[Kind, frozenset[str]] = {
    Kind.SPARK_SUBMIT: frozenset({"job_timeout", "secrets"}),
    Kind.PYSPARK: frozenset(
        {"conf", "py_files", "files", "archives", "env_vars", "environment", "job_timeout", "secrets"}
    ),
    Kind.SPARK_SQL: frozenset({"archives", "env_vars", "environment", "files", "job_timeout", "py_files", "secrets"}),
    Kind.LIVY: frozenset({"application", "application_args", "env_vars", "secrets"}),
}
"""Parameters that the operators of the cluster know and the ones that are left do not, so that `default_args` count."""

_OF_STARTS = frozenset(
    {"driver_class_path", "driver_memory", "exclude_packages", "jars", "packages", "properties_file", "repositories"}
)
SHIELDED: Mapping[Kind, frozenset[str]] = {
    Kind.SPARK_SUBMIT: frozenset(),
    Kind.PYSPARK: _OF_STARTS,
    Kind.SPARK_SQL: _OF_STARTS,
    Kind.LIVY: _OF_STARTS - {"driver_memory", "jars"},
}
"""Those of them by which a task gets a Spark environment: the rewrite takes back what `default_args` give."""

PLACES_OF_DRIVERS = frozenset(
    {
        "spark.driver.bindAddress",
        "spark.driver.host",
        "spark.local.dir",
        "spark.scheduler.allocation.file",
        "spark.scheduler.mode",
    }
)
"""Keys of conf that say where and how the driver of a spark-submit lives. The cluster itself decides it."""

CONNECTIONS: Mapping[Kind, str] = {
    Kind.SPARK_SUBMIT: "conn_id",
    Kind.PYSPARK: "conn_id",
    Kind.SPARK_SQL: "conn_id",
    Kind.LIVY: "livy_conn_id",
}
"""The parameter that names the connection."""
