"""Flink's keys that this system does not have, with what to use instead."""

from __future__ import annotations

_STREAMING = "there are no streaming jobs yet: remove it"
_JVM_MEMORY = "use taskmanager.memory.task.size (slot processes) and taskmanager.memory.spark.size (Spark's JVM)"

FOREIGN_KEYS: dict[str, str] = {
    "akka.": "use rpc.timeout and rpc.max-message-size",
    "pekko.": "use rpc.timeout and rpc.max-message-size",
    "blob.server.port": "blobs travel over the JobManager's ports: remove it",
    "blob.storage.directory": "use high-availability.storageDir",
    "classloader.": "Python has no class loaders: ship code with py_files or wheels",
    "completed-application-store.": "use jobstore.max-capacity and jobstore.expiration-time",
    "env.java.": "use spark.driver.extraJavaOptions for Spark's JVM",
    "execution.checkpointing.": _STREAMING,
    "execution.savepoint": _STREAMING,
    "execution.state-recovery.": _STREAMING,
    "high-availability.jobmanager.port": "use jobmanager.rpc.port",
    "high-availability.kubernetes.": "use high-availability.type: etcd and high-availability.etcd.endpoints",
    "high-availability.zookeeper.": "use high-availability.type: etcd and high-availability.etcd.endpoints",
    "historyserver.": "finished jobs stay in REST: use jobstore.max-capacity and jobstore.expiration-time",
    "io.tmp.dirs": "use exchange.dir, or FLINKLIKE_RUN_DIR to move all files",
    "jobmanager.memory.": "the JobManager is a Python process without a heap setting: remove it",
    "jobmanager.scheduler": "there is one scheduler: remove it",
    "jobstore.cache-size": "use jobstore.max-capacity",
    "jobstore.type": "the store is high-availability.storageDir: remove it",
    "metrics.": "metrics reporters are not available yet: remove it",
    "parallelism.default": "set parallelism in the pipeline, or flinklike run -p",
    "rest.bind-port": "use rest.port",
    "restart-strategy": "restart strategies are not available yet: remove it",
    "scheduler-mode": "there is one scheduler: remove it",
    "security.kerberos.": "Kerberos is not available: remove it",
    "security.ssl.": "TLS between our processes is not available yet: bind to a private network",
    "slotmanager.": "the number of slots is taskmanager.numberOfTaskSlots times the TaskManagers",
    "state.": _STREAMING,
    "table.": "there is no SQL front end: use Spark SQL in a job",
    "taskmanager.data.port": "result partitions travel through exchange.dir: remove it",
    "taskmanager.memory.": _JVM_MEMORY,
    "taskmanager.network.": "result partitions travel through exchange.dir: remove it",
    "web.": "use rest.*",
    "yarn.": "YARN deployment is not available: remove it",
    "kubernetes.": "Kubernetes deployment is not available: remove it",
}


def advice_for(key: str) -> str | None:
    """What to do about a Flink key, or None when it is not one we know of. The longest match wins."""
    matches = [prefix for prefix in FOREIGN_KEYS if key.startswith(prefix)]
    return FOREIGN_KEYS[max(matches, key=len)] if matches else None
