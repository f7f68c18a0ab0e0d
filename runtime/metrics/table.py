"""Every metric there is. docs/metrics.md is made from this table (`python -m runtime.metrics.docgen`).

Names follow Prometheus' conventions: `flinklike_`, the unit (`_seconds`, `_bytes`), `_total` for counters. Label values
come from closed sets, or are bounded by `metrics.max-series`: never names or ids of jobs.
"""

from __future__ import annotations

from runtime.common.states import JobStatus
from runtime.common.waiting import WaitingKind
from runtime.metrics.metric import SECONDS, TASK_SECONDS, Label, Metric, MetricKind, Owner

_COUNTER, _GAUGE, _HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

DIRECTIONS = ("served", "made")
ERROR_KINDS = (
    "unavailable",
    "outcome_unknown",
    "backpressure",
    "storage_exhausted",
    "stale_token",
    "unauthenticated",
    "forbidden",
    "invalid_input",
    "not_found",
    "conflict",
    "too_large",
    "permanent",
    "bug",
)
"""What became of a call or a transaction that failed, by the class of its error (`runtime.metrics.errors`)."""
STORE_KINDS = (
    "graph",
    "owner",
    "events",
    "wanted",
    "client",
    "result",
    "done",
    "leader",
    "jobmaster",
    "taskmanager",
    "fence",
    "principal",
    "cluster-events",
    "cluster",
    "read",
    "other",
)
"""Transactions by the first key that they write: a submit is `graph`, the events of an owner are `events`."""
OUTCOMES = ("done", "refused", *ERROR_KINDS)
WAITING_REASONS = tuple(kind.value for kind in WaitingKind if kind is not WaitingKind.NOTHING)
TERMINAL = tuple(sorted(status.value for status in JobStatus if status.is_globally_terminal))
CHECKPOINT_KINDS = ("checkpoint", "savepoint")
CHECKPOINT_OUTCOMES = ("completed", "failed")
TASK_OUTCOMES = ("FINISHED", "CANCELED", "FAILED")
FAILURE_KINDS = ("USER", "SYSTEM", "RESOURCE", "OTHER")
HEAP_KINDS = ("used", "committed", "max")
SPARK_TASK_OUTCOMES = ("completed", "failed")
SLOT_STATES = ("FREE", "ALLOCATED", "ACTIVE", "RELEASING")
STREAM_KINDS = (
    "JOB_MASTER_TO_DISPATCHER",
    "TASK_MANAGER_TO_RESOURCE_MANAGER",
    "TASK_MANAGER_TO_JOB_MASTER",
    "JOB_MANAGER_TO_JOB_MANAGER",
)

_METHOD = Label("method", meaning="`Gateway.method`, of the gateways between processes")
_DIRECTION = Label("direction", DIRECTIONS)
_STREAM = Label("kind", STREAM_KINDS)
_USER_NAME = Label("accumulator", meaning="as users' code says it")
_UID = Label("uid", meaning="of the query's state, as users' code says it; `-` of a query that other code has started")
_ENVIRONMENT = Label("environment", meaning="`default`, or the first 8 digits of the key of a Spark environment")
_TRANSACTION = Label("kind", STORE_KINDS)
_QUEUE = Label("queue", meaning="one that has options, `default`, or `-` for all others together")

# --- every process ------------------------------------------------------------------------------------------------

BUILD_INFO = Metric(
    "flinklike_build_info",
    _GAUGE,
    Owner.EACH,
    "1, with the release and the kind of process.",
    (
        Label("version", meaning="the release"),
        Label("component", ("jobmanager", "jobmaster", "taskmanager", "local", "historyserver")),
    ),
)
START_TIME = Metric(
    "flinklike_process_start_time_seconds", _GAUGE, Owner.EACH, "When the process has started, in seconds since 1970."
)
CPU_SECONDS = Metric(
    "flinklike_process_cpu_seconds_total",
    _COUNTER,
    Owner.EACH,
    "CPU time of the process itself, user and system, without its children.",
    flink="Status.JVM.CPU.Time",
)
RESIDENT_BYTES = Metric(
    "flinklike_process_resident_memory_bytes",
    _GAUGE,
    Owner.EACH,
    "Resident memory of the process itself. No heap: Flink has no metric of it.",
)
OPEN_FDS = Metric(
    "flinklike_process_open_fds",
    _GAUGE,
    Owner.EACH,
    "Open file descriptors.",
    flink="Status.JVM.FileDescriptor.Open",
)
MAX_FDS = Metric(
    "flinklike_process_max_fds",
    _GAUGE,
    Owner.EACH,
    "File descriptors that the process may open.",
    flink="Status.JVM.FileDescriptor.Max",
)
THREADS = Metric("flinklike_process_threads", _GAUGE, Owner.EACH, "Threads.", flink="Status.JVM.Threads.Count")
EVENT_LOOP_LAG = Metric(
    "flinklike_event_loop_lag_seconds",
    _HISTOGRAM,
    Owner.EACH,
    "How much later than asked the event loop wakes a timer, looked at twice a second.",
    flink="mailboxLatencyMs",
    buckets=SECONDS,
)
RPC_CALLS = Metric(
    "flinklike_rpc_calls_total",
    _COUNTER,
    Owner.EACH,
    "Calls between processes, answered here or made from here.",
    (_DIRECTION, _METHOD),
)
RPC_ERRORS = Metric(
    "flinklike_rpc_errors_total",
    _COUNTER,
    Owner.EACH,
    "Those calls that failed, by the class of the error.",
    (_DIRECTION, _METHOD, Label("error", ERROR_KINDS)),
)
RPC_STREAMS = Metric("flinklike_rpc_streams", _GAUGE, Owner.EACH, "Open streams with other processes.", (_STREAM,))
STREAM_MESSAGES = Metric(
    "flinklike_rpc_stream_queued_messages",
    _GAUGE,
    Owner.EACH,
    "Messages that wait on those streams: to be sent (`outbox`) or handled (`inbox`).",
    (_STREAM, Label("queue", ("outbox", "inbox"))),
    flink="mailboxQueueSize",
)
STREAM_BYTES = Metric(
    "flinklike_rpc_stream_queued_bytes",
    _GAUGE,
    Owner.EACH,
    "Bytes of the messages that wait there.",
    (_STREAM, Label("queue", ("outbox", "inbox"))),
)
STORE_TRANSACTIONS = Metric(
    "flinklike_store_transactions_total",
    _COUNTER,
    Owner.EACH,
    "Transactions of the store (etcd), by what they write and what became of them; `refused`: a condition did not "
    "hold.",
    (_TRANSACTION, Label("outcome", OUTCOMES)),
)
STORE_SECONDS = Metric(
    "flinklike_store_transaction_seconds",
    _HISTOGRAM,
    Owner.EACH,
    "Time of those transactions, with their time in the queue, of failed ones too.",
    (_TRANSACTION,),
    buckets=SECONDS,
)
STORE_COMMITS = Metric(
    "flinklike_store_commits_total",
    _COUNTER,
    Owner.EACH,
    "Requests that carry transactions to the store: many transactions share one when they come at once.",
)
STORE_QUEUE = Metric(
    "flinklike_store_queued_transactions", _GAUGE, Owner.EACH, "Transactions that wait behind a request to the store."
)
DROPPED_SAMPLES = Metric(
    "flinklike_metrics_dropped_samples_total",
    _COUNTER,
    Owner.EACH,
    "Samples that have no place, since their metric has `metrics.max-series` series.",
    (Label("metric", meaning="a name of this table"),),
)
READER_FAILURES = Metric(
    "flinklike_metrics_reader_failures_total",
    _COUNTER,
    Owner.EACH,
    "Scrapes at which a group of metrics could not be read because of a mistake; the log has it once.",
    (Label("reader", meaning="a group of this table"),),
)

LOST_SPANS = Metric(
    "flinklike_traces_lost_total",
    _COUNTER,
    Owner.EACH,
    "Jobs and submits whose spans could not be reported, or of which that is not known when the process ends.",
)

# --- JobManager ---------------------------------------------------------------------------------------------------

IS_LEADER = Metric(
    "flinklike_jobmanager_is_leader", _GAUGE, Owner.JOB_MANAGER, "1 while this JobManager leads, 0 while it stands by."
)
LEADER_CHANGES = Metric(
    "flinklike_jobmanager_leader_changes_total",
    _COUNTER,
    Owner.JOB_MANAGER,
    "Changes of the leader that this JobManager has seen, the first leader included.",
)
JOBS = Metric(
    "flinklike_jobs",
    _GAUGE,
    Owner.JOB_MANAGER,
    "Jobs by state, ended ones as long as REST lists them. The leader has it, as all below.",
    (Label("state", tuple(status.value for status in JobStatus)),),
    flink="numRunningJobs",
)
JOBS_WAITING = Metric(
    "flinklike_jobs_waiting",
    _GAUGE,
    Owner.JOB_MANAGER,
    "Jobs that do not get on, by what they wait for.",
    (Label("reason", WAITING_REASONS),),
)
LONGEST_WAIT = Metric(
    "flinklike_jobs_longest_wait_seconds",
    _GAUGE,
    Owner.JOB_MANAGER,
    "For how long the job has waited that waits longest for this, 0 for none: since its last change of state or "
    "reason.",
    (Label("reason", WAITING_REASONS),),
)
SUBMITS = Metric(
    "flinklike_job_submits_total",
    _COUNTER,
    Owner.JOB_MANAGER,
    "Submits by their answer.",
    (Label("outcome", ("accepted", "already_submitted", *ERROR_KINDS)),),
)
SUBMIT_SECONDS = Metric(
    "flinklike_job_submit_seconds",
    _HISTOGRAM,
    Owner.JOB_MANAGER,
    "Time from a checked submit until it is durable or refused.",
    buckets=SECONDS,
)
JOBS_ENDED = Metric(
    "flinklike_jobs_ended_total",
    _COUNTER,
    Owner.JOB_MANAGER,
    "Jobs of which this leader has learned that they have ended. A job that ends while the leader changes may count at "
    "both.",
    (Label("state", TERMINAL),),
)
TASK_SLOTS = Metric(
    "flinklike_task_slots",
    _GAUGE,
    Owner.JOB_MANAGER,
    "Slots of all registered TaskManagers.",
    flink="taskSlotsTotal",
)
FREE_SLOTS = Metric(
    "flinklike_task_slots_free",
    _GAUGE,
    Owner.JOB_MANAGER,
    "Those that no job has.",
    flink="taskSlotsAvailable",
)
TASK_MANAGERS = Metric(
    "flinklike_registered_taskmanagers",
    _GAUGE,
    Owner.JOB_MANAGER,
    "Registered TaskManagers.",
    flink="numRegisteredTaskManagers",
)
JOB_MASTER_PROCESSES = Metric(
    "flinklike_registered_jobmasters",
    _GAUGE,
    Owner.JOB_MANAGER,
    "JobMaster processes by state; the JobManager itself where jobs run inside it.",
    (Label("state", ("ready", "draining", "disconnected")),),
)
QUEUE_SLOTS = Metric(
    "flinklike_queue_slots", _GAUGE, Owner.JOB_MANAGER, "Slots that jobs of the queue hold.", (_QUEUE,)
)
QUEUE_SHARE = Metric(
    "flinklike_queue_slots_share",
    _GAUGE,
    Owner.JOB_MANAGER,
    "Slots that the queue has a claim to while its jobs want more; 0 without a job.",
    (_QUEUE,),
)
QUEUE_WAITING = Metric(
    "flinklike_queue_jobs_waiting", _GAUGE, Owner.JOB_MANAGER, "Jobs of the queue that lack slots.", (_QUEUE,)
)

# --- processes that run JobMasters --------------------------------------------------------------------------------

OWNED_JOBS = Metric("flinklike_jobmaster_jobs", _GAUGE, Owner.JOB_MASTERS, "Jobs whose JobMaster runs here.")
TAKEOVERS = Metric(
    "flinklike_jobmaster_takeovers_total",
    _COUNTER,
    Owner.JOB_MASTERS,
    "Jobs that came here from an earlier owner.",
)
RESTARTS = Metric(
    "flinklike_jobmaster_restarts_total",
    _COUNTER,
    Owner.JOB_MASTERS,
    "How often jobs here became RESTARTING, but for preempted tasks.",
    flink="numRestarts",
)
PREEMPTIONS = Metric(
    "flinklike_jobmaster_preemptions_total",
    _COUNTER,
    Owner.JOB_MASTERS,
    "Tasks of jobs here that were ended because their slots went to other queues, and run again.",
)
SLOW_SUBTASKS = Metric(
    "flinklike_jobmaster_slow_subtasks_total",
    _COUNTER,
    Owner.JOB_MASTERS,
    "Subtasks of jobs here that were slow (execution.batch.speculative).",
    flink="numSlowExecutionVertices",
)
SPECULATION_OUTCOMES = ("effective", "wasted")
SPECULATIVE_EXECUTIONS = Metric(
    "flinklike_jobmaster_speculative_executions_total",
    _COUNTER,
    Owner.JOB_MASTERS,
    "Attempts of slow subtasks of jobs here: speculative ones that finished first, and those, speculative or not, "
    "whose work was in vain.",
    (Label("outcome", SPECULATION_OUTCOMES),),
    flink="numEffectiveSpeculativeExecutions",
)
CHECKPOINTS = Metric(
    "flinklike_jobmaster_checkpoints_total",
    _COUNTER,
    Owner.JOB_MASTERS,
    "Checkpoints of streaming jobs here that have ended, and savepoints, those of stops too.",
    (Label("kind", CHECKPOINT_KINDS), Label("outcome", CHECKPOINT_OUTCOMES)),
    flink="numberOfCompletedCheckpoints",
)

# --- TaskManager --------------------------------------------------------------------------------------------------

SLOTS = Metric("flinklike_taskmanager_slots", _GAUGE, Owner.TASK_MANAGER, "Slots.", (Label("state", SLOT_STATES),))
TASKS_STARTED = Metric(
    "flinklike_taskmanager_tasks_started_total", _COUNTER, Owner.TASK_MANAGER, "Attempts that a slot has begun."
)
TASK_DURATION = Metric(
    "flinklike_taskmanager_task_seconds",
    _HISTOGRAM,
    Owner.TASK_MANAGER,
    "Time of attempts from their begin here to their report.",
    (Label("outcome", TASK_OUTCOMES),),
    buckets=TASK_SECONDS,
)
TASKS_FAILED = Metric(
    "flinklike_taskmanager_tasks_failed_total",
    _COUNTER,
    Owner.TASK_MANAGER,
    "Failed attempts by the kind of their failure, as docs/failures.md has them.",
    (Label("kind", FAILURE_KINDS),),
)
SLOT_MEMORY = Metric(
    "flinklike_taskmanager_slot_memory_bytes",
    _GAUGE,
    Owner.TASK_MANAGER,
    "Memory of the attempt that runs in a slot, as the TaskManager has measured it last, 0 for none. Exact near the "
    "limit, else an upper bound.",
    (Label("slot", meaning="the slot's number"),),
)
SPARK_ENVIRONMENTS = Metric(
    "flinklike_taskmanager_spark_environments",
    _GAUGE,
    Owner.TASK_MANAGER,
    "Spark environments beside the default one.",
)
SPARK_ENVIRONMENT_BYTES = Metric(
    "flinklike_taskmanager_spark_environments_granted_bytes",
    _GAUGE,
    Owner.TASK_MANAGER,
    "Memory that is set aside for their JVMs, heap and overhead.",
)
SPARK_WARM = Metric(
    "flinklike_taskmanager_spark_is_warm",
    _GAUGE,
    Owner.TASK_MANAGER,
    "1 while the default Spark can take tasks at once; absent without Spark.",
)
SPARK_HEAP = Metric(
    "flinklike_taskmanager_spark_heap_bytes",
    _GAUGE,
    Owner.TASK_MANAGER,
    "Heap of a Spark JVM: what is used, what it has from the system, what it may have. Asked every ten seconds while "
    "somebody scrapes; absent of a JVM that does not answer.",
    (_ENVIRONMENT, Label("kind", HEAP_KINDS)),
)
SPARK_NON_HEAP = Metric(
    "flinklike_taskmanager_spark_non_heap_bytes",
    _GAUGE,
    Owner.TASK_MANAGER,
    "What a Spark JVM uses of its memory beside the heap.",
    (_ENVIRONMENT,),
)
SPARK_COLLECTIONS = Metric(
    "flinklike_taskmanager_spark_garbage_collections_total",
    _COUNTER,
    Owner.TASK_MANAGER,
    "Garbage collections of a Spark JVM since its start.",
    (_ENVIRONMENT,),
)
SPARK_COLLECTION_SECONDS = Metric(
    "flinklike_taskmanager_spark_garbage_collection_seconds_total",
    _COUNTER,
    Owner.TASK_MANAGER,
    "Their time.",
    (_ENVIRONMENT,),
)
SPARK_STAGES = Metric(
    "flinklike_taskmanager_spark_stages_total",
    _COUNTER,
    Owner.TASK_MANAGER,
    "Stages of Spark of attempts that have ended here.",
)
SPARK_TASKS = Metric(
    "flinklike_taskmanager_spark_tasks_total",
    _COUNTER,
    Owner.TASK_MANAGER,
    "Tasks of those stages.",
    (Label("outcome", SPARK_TASK_OUTCOMES),),
)
SPARK_SHUFFLED = Metric(
    "flinklike_taskmanager_spark_shuffle_written_bytes_total",
    _COUNTER,
    Owner.TASK_MANAGER,
    "Bytes that those stages have written for shuffles.",
)
SPARK_SPILLED = Metric(
    "flinklike_taskmanager_spark_spilled_bytes_total",
    _COUNTER,
    Owner.TASK_MANAGER,
    "Bytes that those stages have spilled to disk.",
)
USER_COUNTER = Metric(
    "flinklike_taskmanager_user_counter_total",
    _COUNTER,
    Owner.TASK_MANAGER,
    "What attempts that have FINISHED here have counted with `ctx.counter(name)`.",
    (_USER_NAME,),
    flink="Counter",
)
USER_GAUGE = Metric(
    "flinklike_taskmanager_user_gauge",
    _GAUGE,
    Owner.TASK_MANAGER,
    "`ctx.gauge(name)` of the attempt that has FINISHED here last.",
    (_USER_NAME,),
    flink="Gauge",
)
USER_VALUES = Metric(
    "flinklike_taskmanager_user_histogram_values_total",
    _COUNTER,
    Owner.TASK_MANAGER,
    "How many values attempts that have FINISHED here have recorded with `ctx.histogram(name)`.",
    (_USER_NAME,),
    flink="Histogram",
)
USER_VALUES_SUM = Metric(
    "flinklike_taskmanager_user_histogram_added_up",
    _GAUGE,
    Owner.TASK_MANAGER,
    "The sum of those values.",
    (_USER_NAME,),
)
STREAM_BATCHES = Metric(
    "flinklike_taskmanager_stream_batches_total",
    _COUNTER,
    Owner.TASK_MANAGER,
    "Batches that streaming queries have completed.",
    (_UID,),
)
STREAM_ROWS = Metric(
    "flinklike_taskmanager_stream_rows_total",
    _COUNTER,
    Owner.TASK_MANAGER,
    "Rows that these batches have read.",
    (_UID,),
    flink="numRecordsIn",
)
STREAM_RATE = Metric(
    "flinklike_taskmanager_stream_processed_rows_per_second",
    _GAUGE,
    Owner.TASK_MANAGER,
    "Rows per second that the last batches were processed with, as long as the attempt runs.",
    (_UID,),
    flink="numRecordsInPerSecond",
)
STREAM_TRIGGER = Metric(
    "flinklike_taskmanager_stream_trigger_seconds",
    _GAUGE,
    Owner.TASK_MANAGER,
    "Time of the last batch, the longest of the subtasks.",
    (_UID,),
)
STREAM_PHASE = Metric(
    "flinklike_taskmanager_stream_phase_seconds",
    _GAUGE,
    Owner.TASK_MANAGER,
    "Time of the last batch by phase, the longest of the subtasks.",
    (_UID, Label("phase", meaning="in Spark's words, such as addBatch")),
)
STREAM_BACK_PRESSURE = Metric(
    "flinklike_taskmanager_stream_back_pressured",
    _GAUGE,
    Owner.TASK_MANAGER,
    "Queries whose last batch has taken longer than the interval of their trigger.",
    (_UID,),
    flink="isBackPressured",
)
STREAM_BUSY = Metric(
    "flinklike_taskmanager_stream_busy_seconds",
    _GAUGE,
    Owner.TASK_MANAGER,
    "For how long a query is in one trigger, the longest of the subtasks; 0 below ten seconds.",
    (_UID,),
)
STREAM_STATE_ROWS = Metric(
    "flinklike_taskmanager_stream_state_rows",
    _GAUGE,
    Owner.TASK_MANAGER,
    "Rows that queries have in their state.",
    (_UID,),
)
STREAM_STATE = Metric(
    "flinklike_taskmanager_stream_state_bytes",
    _GAUGE,
    Owner.TASK_MANAGER,
    "Memory that the state of queries takes.",
    (_UID,),
)
STREAM_BACKLOG = Metric(
    "flinklike_taskmanager_stream_backlog",
    _GAUGE,
    Owner.TASK_MANAGER,
    "What sources have and queries have not read, in the unit of the source; absent where no source says it.",
    (_UID,),
    flink="pendingRecords",
)
STREAM_WATERMARK_LAG = Metric(
    "flinklike_taskmanager_stream_watermark_lag_seconds",
    _GAUGE,
    Owner.TASK_MANAGER,
    "How far the watermark is behind the clock, the farthest of the subtasks; absent without a watermark.",
    (_UID,),
    flink="currentEmitEventTimeLag",
)

TABLE: tuple[Metric, ...] = tuple(value for value in globals().copy().values() if isinstance(value, Metric))
"""All of them, in the order of this page."""
