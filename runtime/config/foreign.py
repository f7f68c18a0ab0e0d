"""Advice for keys that are no options: options of Flink and of earlier releases, and misspelt ones."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

_TYPING_ERROR = 0.93
"""From this likeness on a key is taken for a misspelt option, even when it is in one of Flink's areas."""
_GUESS = 0.8
"""From this likeness on an unknown key gets a guess. Below it, a guess would mislead."""

NAMED_AREAS = ("resourcemanager.profiles.", "security.delegation.token.provider.", "slotmanager.queue.")
"""Areas in which the operator gives the names."""
_KEY_LENGTH_MAX = 200

_SAVEPOINTS = (
    "a job is started from a savepoint by flinklike run --from-savepoint, and savepoints are written to "
    "execution.checkpointing.savepoint-dir: remove it"
)
_STATE = "Spark keeps the state of streaming queries: use spark.sql.streaming.*, and execution.checkpointing.dir"
_JVM_MEMORY = "use taskmanager.memory.task.size (slot processes) and taskmanager.memory.spark.size (Spark's JVM)"
_HEAP = "the JobManager is a Python process without a heap setting: remove it"
_ETCD = "use high-availability.type: etcd and high-availability.etcd.endpoints"
_FINISHED_JOBS = "finished jobs stay in REST: use jobstore.max-capacity and jobstore.expiration-time"
_EXCHANGE = "result partitions travel through exchange.dir: remove it"
_HISTORY = "a history is bounded by jobmanager.archive.fs.max-size and historyserver.archive.retained-jobs: remove it"
_WAITS = (
    "a job waits for slots as long as it takes, one of the Adaptive scheduler as long as "
    "jobmanager.adaptive-scheduler.submission.resource-wait-timeout says: remove it"
)
_NO_CHECKPOINT_WAIT = (
    "a rescale waits for no checkpoint, since queries end between two batches: use "
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling"
)
_SLOTS = (
    "it is not available; with resourcemanager.driver: process, docker or ssh, slotmanager.number-of-slots.max bounds "
    "the slots"
)
_NO_TUNING = "it has no counterpart to tune: remove it"
_SOURCES = "a source has a subtask for each of its splits: set its parallelism in the pipeline"
_JOB_SETTING = "jobs set this themselves, in the pipeline or with flinklike run: remove it"
_RPC = "use rpc.timeout and rpc.max-message-size"
_RUN_DIR = "all files are below the run directory: use FLINKLIKE_RUN_DIR"
_CLIENT = "clients set this themselves, with flinklike's or the operator's parameters: remove it"
_REGISTRATION = "connecting is retried without end, a TaskManager's as long as taskmanager.registration.timeout"

REMOVED_KEYS: Mapping[str, str] = {
    "exchange.carrier": "the rows of an edge are always Parquet files below exchange.dir: remove it",
}
"""Options of earlier releases, with what to do about each."""

FOREIGN_KEYS: dict[str, str] = {
    "akka": _RPC,
    "application-result-store": "there are no applications, only jobs: remove it",
    "blob.client": "use rpc.timeout",
    "blob.fetch": _NO_TUNING,
    "blob.offload.minsize": _NO_TUNING,
    "blob.server.port": "blobs travel over the JobManager's ports: remove it",
    "blob.service.cleanup.interval": "unused blobs are collected by the leader: remove it",
    "blob.service.ssl.enabled": "blobs travel on the links that security.ssl.internal.enabled encrypts: remove it",
    "blob.storage.directory": "use high-availability.storageDir",
    "classloader": "Python has no class loaders: ship code with py_files or wheels",
    "cleanup-strategy": "cleaning up is retried until it succeeds: remove it",
    "client": _CLIENT,
    "cluster": _NO_TUNING,
    "cluster.id": "use high-availability.cluster-id",
    "cluster.registration": _REGISTRATION,
    "completed-application-store": "use jobstore.max-capacity and jobstore.expiration-time",
    "env.java": "use spark.driver.extraJavaOptions for Spark's JVM",
    "env.log.dir": _RUN_DIR,
    "env.pid.dir": _RUN_DIR,
    "env.stdout-err.redirect-to-file": "daemons write to files, start-foreground to the terminal: remove it",
    "execution": _JOB_SETTING,
    "execution.batch-shuffle-mode": "edges of pipelines are blocking where they have to be: remove it",
    "execution.batch.adaptive": (
        "use execution.batch.adaptive.auto-parallelism.max-parallelism, "
        "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task or execution.batch.adaptive.skewed-factor, "
        "or set parallelism in the pipeline"
    ),
    "execution.batch.adaptive.auto-parallelism.default-source-parallelism": _SOURCES,
    "execution.batch.speculative": (
        "use execution.batch.speculative.enabled, execution.batch.speculative.max-concurrent-executions or "
        "execution.batch.speculative.block-slow-node-duration"
    ),
    "execution.batch.job-recovery": "recovery of jobs is not configurable: remove it",
    "execution.checkpointing": "use execution.checkpointing.dir, savepoint-dir, interval, timeout or num-retained",
    "execution.runtime-mode": "it is of one job: give it to flinklike run, with -D",
    "execution.savepoint": _SAVEPOINTS,
    "execution.savepoint-restore-mode": _SAVEPOINTS,
    "execution.state-recovery": _SAVEPOINTS,
    "execution.terminate-application-on-any-job-terminated-exceptionally": (
        "a cluster runs until bin/stop-cluster.sh: remove it"
    ),
    "heartbeat.rpc-failure-threshold": "use heartbeat.timeout",
    "high-availability": "use high-availability.type",
    "high-availability.jobmanager.port": "use jobmanager.rpc.port",
    "high-availability.kubernetes": _ETCD,
    "high-availability.zookeeper": _ETCD,
    "high-availability.zookeeper.path.namespace": "use high-availability.cluster-id",
    "high-availability.zookeeper.storagedir": "use high-availability.storageDir",
    "historyserver": _HISTORY,
    "historyserver.web.refresh-interval": "use historyserver.archive.fs.refresh-interval",
    "historyserver.web.ssl": "use security.ssl.rest.enabled",
    "io.tmp.dirs": "use exchange.dir, or FLINKLIKE_RUN_DIR to move all files",
    "job-manager.max-attempts-history-size": "use jobmanager.execution.attempts-history-size",
    "job-result-store": "results are in etcd and below high-availability.storageDir: remove it",
    "jobmanager.adaptive-batch-scheduler": (
        "use execution.batch.adaptive.auto-parallelism.max-parallelism, "
        "execution.batch.adaptive.auto-parallelism.min-parallelism or "
        "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task"
    ),
    "jobmanager.adaptive-batch-scheduler.default-source-parallelism": _SOURCES,
    "jobmanager.adaptive-batch-scheduler.speculative": "use execution.batch.speculative.enabled",
    "jobmanager.adaptive-scheduler": (
        "use jobmanager.adaptive-scheduler.submission.resource-wait-timeout, "
        "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout or "
        "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout"
    ),
    "jobmanager.adaptive-scheduler.prefer-minimal-taskmanagers": "slots are spread over the TaskManagers: remove it",
    "jobmanager.adaptive-scheduler.rescale-trigger": _NO_CHECKPOINT_WAIT,
    "jobmanager.adaptive-scheduler.scaling-interval.min": (
        "use jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling"
    ),
    "jobmanager.execution": _NO_TUNING,
    "jobmanager.future-pool.size": _NO_TUNING,
    "jobmanager.io-pool.size": _NO_TUNING,
    "jobmanager.memory": _HEAP,
    "jobmanager.partition": "partitions are deleted when no consumer needs them: remove it",
    "jobmanager.resource-id": "ids of JobManagers are drawn at start: remove it",
    "jobmanager.retrieve-taskmanager-hostname": "use taskmanager.host",
    "jobmanager.rpc.bind-port": "the port that is bound is the one that is published: use jobmanager.rpc.port",
    "jobmanager.web": "use rest.address, rest.port and rest.bind-address",
    "jobmanager.web.refresh-interval": "use web.refresh-interval",
    "jobstore.cache-size": "use jobstore.max-capacity",
    "jobstore.type": "the store is high-availability.storageDir: remove it",
    "kubernetes": "nothing here talks to Kubernetes; conf/kubernetes has manifests: remove it",
    "library-cache-manager": "unused blobs are collected by the leader: remove it",
    "metrics": "use metrics.reporters: prometheus and metrics.prometheus.port",
    "metrics.reporter.otel": "use metrics.reporters: otlp and metrics.reporter.otlp.exporter.endpoint",
    "pekko": _RPC,
    "pipeline": _JOB_SETTING,
    "process": _RUN_DIR,
    "recovery": _ETCD,
    "resourcemanager": _SLOTS,
    "resourcemanager.rpc.port": "the ResourceManager is in the JobManager: use jobmanager.rpc.port",
    "rest.bind-port": "the port that is bound is the one that is published: use rest.port",
    "rest.async": _NO_TUNING,
    "rest.await-leader-timeout": _NO_TUNING,
    "rest.cache": _NO_TUNING,
    "rest.client": "use rest.server.max-content-length",
    "rest.connection-timeout": _CLIENT,
    "rest.flamegraph": "flame graphs are made when somebody looks: remove it",
    "rest.idleness-timeout": _NO_TUNING,
    "rest.profiling": "there is no profiler: remove it",
    "rest.retry": _CLIENT,
    "rest.server.numthreads": "REST is served by one event loop: remove it",
    "rest.url-prefix": "REST is served at / and /v1: remove it",
    "restart-strategy": "use restart-strategy.type",
    "savepoints": _SAVEPOINTS,
    "security.delegation": "use security.delegation.tokens.enabled",
    "security.kerberos": "Kerberos is not available: remove it",
    "security.ssl": "certificates and keys are PEM files, and TLS is 1.2 or later: use security.ssl.internal.cert and "
    "security.ssl.rest.cert",
    "security.ssl.rest.verify-hostname": "names are always verified: remove it",
    "slot.idle": "a job's slots are freed when it ends: remove it",
    "slot.request": _WAITS,
    "slotmanager": _SLOTS,
    "state": _STATE,
    "table": "there is no SQL front end: use Spark SQL in a job",
    "table.optimizer.adaptive-broadcast-join": (
        "an edge of a pipeline says below which size its rows go to all subtasks, hash(..., broadcast_below='10 mb'): "
        "remove it"
    ),
    "table.optimizer.skewed-join-optimization": (
        "use execution.batch.adaptive.skewed-factor, and hash(..., splittable=True) in the pipeline"
    ),
    "task.cancellation.interval": "use task.cancellation.timeout",
    "task.cancellation.timers": "use task.cancellation.timeout",
    "taskmanager.cpu.cores": "the cores are those of the process: set taskmanager.numberOfTaskSlots",
    "taskmanager.data": _EXCHANGE,
    "taskmanager.jvm-exit-on-oom": "a task above its memory is killed alone: use taskmanager.memory.task.size",
    "taskmanager.load-balance.mode": "slots are spread over the TaskManagers: remove it",
    "taskmanager.log.path": _RUN_DIR,
    "taskmanager.maxregistrationduration": "use taskmanager.registration.timeout",
    "taskmanager.memory": _JVM_MEMORY,
    "taskmanager.network": _EXCHANGE,
    "taskmanager.state": _STATE,
    "web.access-control-allow-origin": "REST answers no other origin: remove it",
    "web.adaptive-scheduler": "use web.adaptive-scheduler.rescale-history.size",
    "web.cancel.enable": "every client with the cluster's token may cancel: remove it",
    "web.checkpoints": _STATE,
    "web.history": _FINISHED_JOBS,
    "web.log.path": _RUN_DIR,
    "web.port": "use rest.port",
    "web.rescale.enable": "every client that may change a job may rescale it: remove it",
    "web.submit.enable": "every client with the cluster's token may submit: remove it",
    "web.timeout": "use rpc.timeout",
    "web.tmpdir": _RUN_DIR,
    "web.upload.dir": "uploads go to high-availability.storageDir: remove it",
    "yarn": "YARN deployment is not available: remove it",
}


def explain_unknown(key: str, spelling: Mapping[str, str]) -> str:
    """Why `key` is refused, and what to do. `spelling` maps each option's key in lower case to its spelling, which
    differs between files and environment variables."""
    lower = key.lower()
    if len(lower) > _KEY_LENGTH_MAX:
        return "is no option: conf/REFERENCE.md lists them"
    if lower in REMOVED_KEYS:
        return f"is no option any more: {REMOVED_KEYS[lower]}"
    is_flinks = lower in FOREIGN_KEYS
    meant = (None if is_flinks else _abbreviated(lower, spelling)) or _nearest(lower, spelling, _TYPING_ERROR)
    meant = meant or (None if is_flinks else _nearest_area(lower))
    if meant is not None:
        return f"is no option; did you mean {meant}?"
    advice = advice_for(lower)
    if advice is not None:
        return f"is Flink's, but not available here: {advice}"
    meant = _nearest(lower, spelling, _GUESS)
    return "is no option" + (f"; did you mean {meant}?" if meant else ": conf/REFERENCE.md lists them")


def advice_for(key: str) -> str | None:
    """What to do about an option of Flink, None for an unknown key. The longest matching area wins."""
    area = key.lower()
    while area not in FOREIGN_KEYS:
        area, dot, _ = area.rpartition(".")
        if not dot:
            return None
    return FOREIGN_KEYS[area]


def _abbreviated(key: str, spelling: Mapping[str, str]) -> str | None:
    """The only option that ends with `.<key>`: a key without its area, such as `etcd.endpoints`."""
    found = [written for known, written in spelling.items() if known.endswith(f".{key}")]
    return found[0] if len(found) == 1 else None


def _nearest_area(key: str) -> str | None:
    """The area of options whose names come from the operator, when the key begins with a misspelt one."""
    for area in NAMED_AREAS:
        words = area.count(".")
        begin = ".".join(key.split(".")[:words]) + "."
        if key.count(".") > words and difflib.SequenceMatcher(None, begin, area).ratio() >= _TYPING_ERROR:
            return f"{area}<name>.*"
    return None


def _nearest(key: str, spelling: Mapping[str, str], likeness: float) -> str | None:
    found = difflib.get_close_matches(key, spelling, n=1, cutoff=likeness)
    return spelling[found[0]] if found else None
