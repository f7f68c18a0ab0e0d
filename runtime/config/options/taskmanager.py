"""Options of TaskManagers: slots, memory, Spark, exchange, logs. `spark.*` keys pass through to the JVM."""

from __future__ import annotations

from runtime.config.option import (
    ConfigOption,
    bool_option,
    choice_option,
    duration_option,
    float_option,
    host_option,
    int_between,
    int_option,
    matching,
    parse_id_range,
    parse_labels,
    parse_list,
    parse_size,
    parse_variables,
    size_option,
    string_option,
    worker_id_option,
)

TASKMANAGER_HOST = host_option(
    "taskmanager.host", "127.0.0.1", "Host name or address under which other processes reach the TaskManager."
)
TASKMANAGER_BIND_HOST = host_option("taskmanager.bind-host", "127.0.0.1", "Interface that the TaskManager listens on.")
TASKMANAGER_PORT = int_option(
    "taskmanager.rpc.port", 0, "gRPC port of the TaskManager; 0 picks a free one.", low=0, high=65535
)
TASKMANAGER_RESOURCE_ID: ConfigOption[str] = ConfigOption(
    "taskmanager.resource-id",
    matching(r"([A-Za-z0-9][A-Za-z0-9._:-]*)?", "a name of letters, digits, '.', '_', ':' and '-'"),
    "",
    "Name of this TaskManager in REST and logs. The default is kept for the next one that is started in its place.",
    "String",
    "<host>-<8 hex>",
)
WORKER_ID = worker_id_option(
    "taskmanager.worker-id",
    "The label that a driver (resourcemanager.driver) gives to a TaskManager that it starts.",
)
SLOTS: ConfigOption[int | None] = ConfigOption(
    "taskmanager.numberOfTaskSlots",
    int_between(1, 10_000),
    None,
    "Slots of a TaskManager: tasks that it runs at the same time.",
    "Integer",
    "number of cores",
)
TASK_MEMORY = size_option(
    "taskmanager.memory.task.size",
    "4 gb",
    "Memory of all slot processes of a TaskManager; each slot's process tree may use its share, files in memory "
    "(memfd, tmpfs) that it has open included. Python UDF workers belong to the JVM and are not counted.",
    low="64 mb",
)
SPARK_MEMORY = size_option(
    "taskmanager.memory.spark.size",
    "1 gb",
    "Heap of the TaskManager's warm Spark driver JVM, and of Spark environments of jobs that name none.",
    low="512 mb",
)
SPARK_MEMORY_TOTAL: ConfigOption[int | None] = ConfigOption(
    "taskmanager.memory.spark.total",
    parse_size,
    None,
    "Memory of all driver JVMs of a TaskManager: that of taskmanager.memory.spark.size, and those of the Spark "
    "environments that it starts for jobs with static conf of their own, each with its overhead: 512 MiB, or a tenth "
    "of its heap if that is more. A job waits, or is refused, when its environment does not fit beside the others; "
    "with 0 none is started.",
    "MemorySize",
    "the default environment's, and 4 gb",
)
SPARK_ENVIRONMENT_IDLE = duration_option(
    "taskmanager.spark.environment.idle-timeout",
    "15 min",
    "A Spark environment that was started for jobs ends when no task has used it for so long, or earlier, when another "
    "one needs its memory.",
    low="1 s",
)
SPARK_ENABLED = bool_option(
    "taskmanager.spark.enabled",
    "Run a warm Spark in the TaskManager. Without it the TaskManager needs no Java and takes pure-Python tasks only.",
    default=True,
)
SPARK_UI = bool_option(
    "taskmanager.spark.ui",
    "Let people who may see jobs of all namespaces look at Spark's own pages of each Spark environment, through the "
    "JobManager (rest.spark-ui.port). A JVM makes them when somebody looks; they cost nothing before.",
    default=True,
)
SPARK_CLASS_ARCHIVE = bool_option(
    "taskmanager.spark.class-archive",
    "Build a class archive of the JVM once, in the background: later starts are twice as fast.",
    default=True,
)
SPARK_WARM_UP = int_option(
    "taskmanager.spark.warm-up.count",
    200,
    "Small queries that warm up the JVM while it is idle, some 10 s of CPU: they make the first jobs faster.",
    low=0,
    high=1000,
)
SPARK_WAREHOUSE: ConfigOption[str] = ConfigOption(
    "taskmanager.spark.warehouse",
    matching(r"(/[^;\n]+)?", "an absolute path without ';'"),
    "",
    "Directory of tables that outlive their jobs, with a catalog that one TaskManager at a time can use.",
    "String",
    "none: each job has a catalog of its own, which ends with it",
)
SPARK_SECRET_FILE = string_option(
    "taskmanager.spark.secret-file",
    "",
    "File with the secret that the master and workers of spark.master spark://... were started with "
    "(spark.authenticate.secret), for the TaskManager's user only; with sc://... the token of the Spark Connect "
    "server. With local[...], k8s:// and yarn Spark makes a secret for each driver.",
)
SPARK_ALLOW_UNAUTHENTICATED = bool_option(
    "taskmanager.spark.allow-unauthenticated",
    "Use a Spark cluster (spark://..., sc://...) without a secret: every client that reaches the driver's ports, or "
    "the server's, can run code as its user.",
    default=False,
)
SPARK_NETWORK_ENCRYPTION = bool_option(
    "taskmanager.spark.network-encryption",
    "Encrypt the connections between Spark's driver and its executors, with a key made from their secret; a spark:// "
    "cluster has to be started with spark.network.crypto.enabled too.",
    default=False,
)
SPARK_USER: ConfigOption[tuple[str, ...]] = ConfigOption(
    "taskmanager.spark.user",
    parse_list,
    (),
    "Accounts of Spark's JVMs where slots are users of their own (taskmanager.slots.uids): the first one for the warm "
    "JVM, and each further one lets a TaskManager have one more Spark environment of jobs at once. An account exists, "
    "has no rights, and runs nothing else; each TaskManager of a host needs its own.",
    "List",
    "none",
)
LABELS: ConfigOption[tuple[str, ...]] = ConfigOption(
    "taskmanager.labels",
    parse_labels,
    (),
    "key:value list of what this TaskManager has, such as gpu:a100,zone:b. Jobs that ask for a label run only where it "
    "is.",
    "List",
    "(none)",
)
SPARK_PROFILE = string_option(
    "taskmanager.spark.profile", "", "Name of this TaskManager's static Spark conf, for jobs that ask for it."
)
SECRETS_DIRECTORY = string_option(
    "taskmanager.secrets.directory",
    "",
    "Directory with one file per secret, as Docker and Kubernetes mount them; tasks get those that their job names. "
    "Files in a directory there are for jobs of the namespace with its name only.",
)
ENVIRONMENT_PASSED: ConfigOption[tuple[str, ...]] = ConfigOption(
    "taskmanager.environment.passed",
    parse_variables,
    (),
    "Further environment variables of the TaskManager that user code gets, names or beginnings with *: AWS_*, for "
    "instance. Variables that PySpark needs need not be listed (docs/operations.md); FLINKLIKE_* never pass.",
    "List",
    "(none)",
)
ARCHIVES_SIZE = size_option(
    "taskmanager.archives.max-size",
    "16 gb",
    "Total size of the unpacked archives and wheels of one job.",
)
ARCHIVES_ENTRIES = int_option(
    "taskmanager.archives.max-entries",
    500_000,
    "Total number of files, directories and links in the archives and wheels of one job.",
)
ARCHIVES_MEMORY = size_option(
    "taskmanager.archives.max-memory",
    "512 mb",
    "Memory of the process that unpacks the archives of a job.",
    low="128 mb",
)
ARCHIVES_CPU_TIME = duration_option(
    "taskmanager.archives.max-cpu-time",
    "5 min",
    "Processor time of the process that unpacks the archives of a job; above it the job fails.",
    low="1 s",
)
ARCHIVES_TIMEOUT = duration_option(
    "taskmanager.archives.timeout",
    "15 min",
    "Time in which the archives of a job have to be unpacked, on a slow disk too; then the attempt fails.",
    low="1 s",
)
REGISTRATION_TIMEOUT = duration_option(
    "taskmanager.registration.timeout", "5 min", "A TaskManager that finds no JobManager for this long at start exits."
)
SLOT_TIMEOUT = duration_option(
    "taskmanager.slot.timeout", "10 s", "A slot that its job does not take within this time is freed."
)
CANCELLATION_TIMEOUT = duration_option(
    "task.cancellation.timeout", "1 s", "Time between asking a task to stop and killing its process.", low="0 ms"
)
ISOLATION_TIMEOUT = duration_option(
    "taskmanager.isolation-timeout",
    "60 s",
    "A TaskManager that has not read its own keys in etcd for this long stops its exclusive tasks: they may run "
    "elsewhere soon after. If it moves the outputs of a job at that time, and is frozen or waits for its storage, its "
    "guard ends it, and it starts again. The same in the whole cluster.",
    low="1 s",
)
JOBMASTER_TIMEOUT = duration_option(
    "taskmanager.jobmaster-timeout",
    "15 min",
    "A TaskManager cancels the tasks of a job for which no JobMaster has been connected for this long; it keeps their "
    "reports. Time during which etcd cannot be reached does not count.",
    low="1 s",
)
DRAIN_TIMEOUT = duration_option(
    "taskmanager.drain-timeout",
    "20 s",
    "Time in which a TaskManager that drains (after SIGTERM, or `flinklike taskmanagers drain`) lets its tasks finish; "
    "the rest then runs elsewhere. Service managers should wait 10 s longer before SIGKILL.",
    low="0 ms",
)
TENANCY = choice_option(
    "taskmanager.tenancy",
    "shared",
    "Which jobs a TaskManager serves: jobs of all namespaces at once, on one Spark, or jobs of one namespace at a "
    "time. With `namespace` its Spark and its slot processes are replaced before it serves another namespace.",
    "shared",
    "namespace",
)
SLOT_ISOLATION = choice_option(
    "taskmanager.slot.isolation",
    "process",
    "What keeps jobs apart: `process`, a process for each slot, with Spark's JVMs shared by jobs; or `jvm`, each job "
    "also has a driver JVM of its own, which is started for it, ends with it, and takes its room from "
    "taskmanager.memory.spark.total. Then no JVM is kept warm: a job waits some seconds for Spark.",
    "process",
    "jvm",
)
SLOT_UIDS: ConfigOption[tuple[int, int] | None] = ConfigOption(
    "taskmanager.slots.uids",
    parse_id_range,
    None,
    "Range of user ids, 20000-20099, for instance: each slot is a user of its own, and each job a group. Needs root. "
    "The first id is the group of all slots, then comes one for each slot, and the rest are groups of jobs that are "
    "here at once: one for each job, or two beside Spark, which needs taskmanager.spark.user. Each TaskManager of a "
    "host needs a range of its own, without accounts.",
    "Range",
    "none: tasks run as the TaskManager's user",
)
SLOT_PROCESSES_MAX = int_option(
    "taskmanager.slots.max-processes",
    1024,
    "Processes and threads that a slot may have at once, where slots are users of their own (taskmanager.slots.uids) "
    "or have control groups (taskmanager.slots.cgroups).",
    low=32,
)
SLOT_CGROUPS = choice_option(
    "taskmanager.slots.cgroups",
    "off",
    "Control groups that limit memory, processor and processes of each slot: `auto` uses the available ones and logs "
    "which are not, `required` refuses to start without them. Their memory limit is a quarter above the slot's share, "
    "at which a task is ended with that reason.",
    "off",
    "auto",
    "required",
)
SLOT_CPU_MAX = float_option(
    "taskmanager.slots.max-cpu-cores",
    0.0,
    "Cores that a slot may use, where slots have control groups (taskmanager.slots.cgroups); 0 is no limit.",
    low=0.0,
    high=10_000.0,
)
SLOT_PROCESS_REUSE = bool_option(
    "slot.process.reuse",
    "Let a slot process run several tasks with the same code and conf; module globals survive then.",
    default=True,
)
SCRIPT_STATIC_CONF = choice_option(
    "script.static-conf",
    "warn",
    "What happens when a script sets static Spark conf that the warm session cannot take. With environment, a script "
    "that sets it for its first session ends there, and begins again in a Spark environment that has it.",
    "warn",
    "fail",
    "environment",
)
EXCHANGE_DIR = string_option(
    "exchange.dir",
    "",
    "Directory URL for result partitions. With more than one host it must be shared.",
    default_text="<run>/exchange",
)
EXCHANGE_INLINE_MAX = size_option(
    "exchange.inline.max-size", "256 kb", "Largest JSON value that a subtask may return.", low="0"
)
ATTEMPT_LOG_MAX = size_option(
    "taskmanager.log.attempt.max-size",
    "10 mb",
    "Bound of each of an attempt's three logs. When a log exceeds it, all but its last half is deleted.",
)
ATTEMPT_LOG_TOTAL = size_option(
    "taskmanager.log.attempt.total-size", "1 gb", "Bound of all attempt logs of a TaskManager; the oldest go first."
)
ATTEMPT_LOG_RETENTION = duration_option(
    "taskmanager.log.attempt.retention", "7 d", "How long the logs of an attempt are kept.", low="0 ms"
)
