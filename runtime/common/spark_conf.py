"""The one judge of a job's Spark conf: what is static, what a cluster does not offer, what to do instead.

Static conf belongs to a JVM's start: a job gets it from a TaskManager whose Spark was started with it, or from one that
starts a Spark environment for it. Static is what Spark reads when it starts; keys of its users and of libraries are
none of it, and `spark.hadoop.*` is the Hadoop conf, of which each job has one of its own (R22).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from runtime.common.spark_defaults import SPARK_DEFAULTS

_IGNORED = frozenset({"spark.master", "spark.remote", "spark.api.mode", "spark.scheduler.pool"})
_IGNORED_PREFIXES = ("spark.submit.", "spark.app.", "spark.job.")
"""Names and places of an application, and keys that slots set. A job's values for them are ignored with a note."""

APP_NAME = "spark.app.name"
PY_FILES, FILES, ARCHIVES = "spark.submit.pyFiles", "spark.files", "spark.archives"
"""Files of a job, by the names that spark-submit has for them in conf."""

_OF_SESSIONS = frozenset({"spark.log.level", PY_FILES, FILES, ARCHIVES})
"""Keys that Spark reads when it starts, and that a session has of its own."""

STATIC_SQL = frozenset(
    {
        "spark.sql.artifact.copyFromLocalToFs.allowDestLocal",
        "spark.sql.avro.schemaUrlAllowedSchemes",
        "spark.sql.broadcastExchange.maxThreadThreshold",
        "spark.sql.cache.serializer",
        "spark.sql.catalog.spark_catalog.defaultDatabase",
        "spark.sql.catalogImplementation",
        "spark.sql.codegen.cache.maxEntries",
        "spark.sql.codegen.comments",
        "spark.sql.debug",
        "spark.sql.defaultUrlStreamHandlerFactory.enabled",
        "spark.sql.event.truncate.length",
        "spark.sql.extensions",
        "spark.sql.extensions.test.loadFromCp",
        "spark.sql.filesourceTableRelationCacheSize",
        "spark.sql.globalTempDatabase",
        "spark.sql.hive.thriftServer.http.sniHostCheckEnabled",
        "spark.sql.hive.thriftServer.singleSession",
        "spark.sql.hive.version",
        "spark.sql.kafka.disallowedOptions",
        "spark.sql.legacy.hive.thriftServer.allowSettingSystemProperties",
        "spark.sql.legacy.sessionInitWithConfigDefaults",
        "spark.sql.metadataCacheTTLSeconds",
        "spark.sql.queryExecutionListeners",
        "spark.sql.reflect.allowList",
        "spark.sql.restrictedMode.enabled",
        "spark.sql.resultQueryStage.maxThreadThreshold",
        "spark.sql.shuffleExchange.maxThreadThreshold",
        "spark.sql.sources.disabledJdbcConnProviderList",
        "spark.sql.sources.schemaStringLengthThreshold",
        "spark.sql.streaming.streamingQueryListeners",
        "spark.sql.streaming.ui.enabled",
        "spark.sql.streaming.ui.enabledCustomMetricList",
        "spark.sql.streaming.ui.retainedProgressUpdates",
        "spark.sql.streaming.ui.retainedQueries",
        "spark.sql.subquery.maxThreadThreshold",
        "spark.sql.ui.retainedExecutions",
        "spark.sql.warehouse.dir",
    }
)
"""Spark's own list; a test compares it with the JVM's."""

_OF_METASTORES = ("spark.hadoop.hive.", "spark.hadoop.javax.jdo.")
"""The catalog that jobs share reads these when Spark starts (`taskmanager.spark.warehouse`)."""

_NAMESPACES = (
    "acls admin api app appStateStore archives authenticate barrier blacklist block blockManager broadcast buffer "
    "cache callstack cdc checkpoint cleaner cloneBasedClosureCleaner connect cores dead decommission default deploy "
    "diskStore driver dynamicAllocation eventLog excludeOnFailure executor executorEnv extraListeners file files "
    "graphx hadoopRDD history hive home io jars job jobGroup kafka kerberos kryo kryoserializer kubernetes launcher "
    "local locality log logConf logLineage logging master maxRemoteBlockSizeFetchToMem memory metrics modify network "
    "plugins port pyspark python r rdd redaction reducer remote repl resources resultGetter rpc scheduler security "
    "serializer shuffle shutdown sparkr speculation ssl stage standalone starvation storage streaming submit task "
    "taskMetrics test testing ui unsafe user worker yarn "
)
SPARK_NAMESPACES = frozenset(_NAMESPACES.split())
"""Second words of Spark's own keys; a test compares them with the JVM's. Other keys belong to other systems."""

_STATIC_SQL_PREFIXES = ("spark.sql.hive.metastore.",)
"""Registered by a module of Spark that is not always loaded."""

OWNED: Mapping[str, str] = {
    "spark.driver.memory": "use taskmanager.memory.spark.size",
    "spark.driver.host": "use taskmanager.host",
    "spark.driver.bindAddress": "use taskmanager.bind-host",
    "spark.submit.deployMode": "the driver lives in the TaskManager",
    "spark.scheduler.mode": "slots share the driver through fixed FAIR pools",
    "spark.scheduler.allocation.file": "slots share the driver through fixed FAIR pools",
    "spark.sql.warehouse.dir": "tables lie with their job, or for all jobs where taskmanager.spark.warehouse says",
    "spark.sql.catalogImplementation": "each job has its own catalog; taskmanager.spark.warehouse gives all jobs one",
    **dict.fromkeys(
        (
            "spark.sql.broadcastExchange.maxThreadThreshold",
            "spark.sql.resultQueryStage.maxThreadThreshold",
            "spark.sql.shuffleExchange.maxThreadThreshold",
            "spark.sql.subquery.maxThreadThreshold",
        ),
        "threads that the queries of all share are as many as are needed",
    ),
    "spark.local.dir": "it lies in the TaskManager's working directory",
    "spark.authenticate": "Spark's driver always asks for a secret; that of a spark:// cluster is in "
    "taskmanager.spark.secret-file",
    **dict.fromkeys(
        (
            "spark.authenticate.secret",
            "spark.authenticate.secret.file",
            "spark.authenticate.secret.driver.file",
            "spark.authenticate.secret.executor.file",
        ),
        "Spark shows its conf to every task: the secret of a spark:// cluster is in taskmanager.spark.secret-file, and "
        "with local[...] each JVM makes its own",
    ),
    **dict.fromkeys(
        (
            "spark.network.crypto.enabled",
            "spark.network.crypto.saslFallback",
            "spark.authenticate.enableSaslEncryption",
            "spark.network.sasl.serverAlwaysEncrypt",
        ),
        "use taskmanager.spark.network-encryption",
    ),
    "spark.executor.killOnFatalError.depth": "an error of one task does not end the Spark of all",
    "spark.python.daemon.module": "workers start in their job's directory through a daemon of ours",
    "spark.pyspark.python": "user code runs on the TaskManager's interpreter",
    "spark.pyspark.driver.python": "user code runs on the TaskManager's interpreter",
    "spark.remote": "set spark.master to sc://host:port where TaskManagers run: their slots are clients of that server",
    "spark.api.mode": "with spark.master sc://host:port of the TaskManager a session is one of Spark Connect",
}
"""Keys that no job can set, with the reason or with what to use instead."""

WARM_CONF: Mapping[str, str] = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
"""Static conf that every TaskManager's Spark has, unless its configuration says otherwise."""

OF_ENVIRONMENTS = frozenset({"spark.driver.memory", "spark.sql.catalogImplementation"})
"""Owned keys that a job can set nevertheless: they are those of an environment that is started for it."""

ISOLATION, JVM = "spark.flinklike.isolation", "jvm"
"""The key, and its value, by which a job has a driver JVM of its own. A plain Spark has no use for it."""

EXECUTOR_ENV = "spark.executorEnv."
"""Environment variables of Python workers, which PySpark sends with each function."""

_OF_EXECUTORS = frozenset(
    {
        "spark.cores.max",
        "spark.executor.cores",
        "spark.executor.defaultJavaOptions",
        "spark.executor.extraClassPath",
        "spark.executor.extraJavaOptions",
        "spark.executor.extraLibraryPath",
        "spark.executor.instances",
        "spark.executor.memory",
        "spark.executor.memoryOverhead",
        "spark.executor.memoryOverheadFactor",
        "spark.executor.pyspark.memory",
    }
)
_OF_EXECUTORS_PREFIXES = (
    "spark.dynamicAllocation.",
    "spark.executor.resource.",
    "spark.kubernetes.",
    "spark.shuffle.service.",
    "spark.yarn.",
)

_SIZE = re.compile(r"(\d{1,18})(?:([kmgtp])b?|b)\Z")


def conf_text(value: object) -> str:
    """A Spark conf value as Spark writes it: booleans in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_ignored(key: str) -> bool:
    """True for keys that a job may set without any effect."""
    return key in _IGNORED or (key.startswith(_IGNORED_PREFIXES) and key not in _OF_SESSIONS)


def is_static(key: str) -> bool:
    """True for keys that only a new JVM could take. Keys of other systems are none of Spark's."""
    if not key.startswith("spark.") or is_ignored(key) or key in _OF_SESSIONS or key.startswith(EXECUTOR_ENV):
        return False
    if key == ISOLATION:
        return True
    if key.startswith("spark.sql."):
        return key in STATIC_SQL or key.startswith(_STATIC_SQL_PREFIXES)
    return key.split(".")[1] in SPARK_NAMESPACES or key.startswith(_OF_METASTORES)


def is_without_effect(key: str, offered: Mapping[str, str]) -> bool:
    """True for keys of executors and of their cluster where Spark's tasks run in the driver JVM."""
    is_of_executors = key in _OF_EXECUTORS or key.startswith(_OF_EXECUTORS_PREFIXES)
    return is_of_executors and offered.get("spark.master", "").startswith("local")


def static_conf(conf: Mapping[str, str]) -> dict[str, str]:
    """The part of a job's conf that a TaskManager must offer."""
    return {key: value for key, value in conf.items() if is_static(key)}


def is_same(wanted: str, offered: str | None) -> bool:
    """True if both values mean the same: 1024m is 1g, True is true."""
    return offered is not None and normal_value(wanted) == normal_value(offered)


def is_offered(key: str, value: str, offered: Mapping[str, str]) -> bool:
    """True if a Spark with the conf `offered` is as wanted; what is not in it has Spark's own value."""
    return is_same(value, offered.get(key, SPARK_DEFAULTS.get(key)))


def normal_value(value: str) -> str | int:
    """Equal for values that mean the same to Spark: bytes for a size with a unit, lower case for a boolean."""
    text = value.strip()
    lower = text.lower()
    size = _SIZE.match(lower)
    if size is not None:
        return int(size.group(1)) << 10 * ("kmgtp".index(size.group(2)) + 1 if size.group(2) else 0)
    return lower if lower in {"true", "false"} else text


def lacking(wanted: Mapping[str, str], offered: Mapping[str, str]) -> list[str]:
    """The static keys that `offered` does not have as wanted, and that would have an effect there."""
    return sorted(
        key
        for key, value in wanted.items()
        if not is_offered(key, value, offered) and not is_without_effect(key, offered)
    )


def fewest_lacking(wanted: Mapping[str, str], offers: Sequence[Mapping[str, str]]) -> list[str]:
    """The keys that the best of the offers lacks; none when there are no offers yet."""
    return min((lacking(wanted, offer) for offer in offers), key=len, default=[])


def is_owned(key: str) -> bool:
    """True for a key that no job can set, in no environment."""
    return key in OWNED and key not in OF_ENVIRONMENTS


def advice(key: str, value: str) -> str:
    """One sentence about a key that no TaskManager offers, nor starts an environment for."""
    if key in OF_ENVIRONMENTS:
        where = "taskmanager.memory.spark.total; with taskmanager.slots.uids, accounts of taskmanager.spark.user"
        return f"spark_conf {key}: no TaskManager starts a Spark environment for a job ({where})"
    if key in OWNED:
        return f"spark_conf {key}: a job cannot set it: {OWNED[key]}"
    return f"spark_conf {key}: static, and no TaskManager offers {value[:80]!r}: start one with -D {key}={value[:80]}"
