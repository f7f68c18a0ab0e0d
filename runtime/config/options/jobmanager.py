"""Options of the JobManager, of JobMaster processes and of REST."""

from __future__ import annotations

from runtime.config.option import (
    ConfigOption,
    bool_option,
    choice_option,
    duration_option,
    host_option,
    int_between,
    int_option,
    matching,
    parse_endpoints,
    parse_hosts,
    parse_origins,
    size_option,
    worker_id_option,
)

JOBMANAGER_ADDRESS = host_option(
    "jobmanager.rpc.address", "127.0.0.1", "Host name or address under which other processes reach the JobManager."
)
JOBMANAGER_PORT = int_option(
    "jobmanager.rpc.port",
    6123,
    "gRPC port of the JobManager; 0 picks a free one, which works with high-availability.type: etcd, or where "
    "resourcemanager.driver starts all TaskManagers.",
    low=0,
    high=65535,
)
JOBMANAGER_BIND_HOST = host_option("jobmanager.bind-host", "127.0.0.1", "Interface that the JobManager listens on.")
SINGLE_JOBMASTER = bool_option(
    "jobmanager.jobmaster.single.enable",
    "Run JobMasters in separate JobMaster processes instead of inside the JobManager. Needs high-availability.type: "
    "etcd.",
    default=False,
)
SHUTDOWN_ON_FINISH = bool_option(
    "execution.shutdown-on-application-finish",
    "A cluster of bin/standalone-job.sh ends when its job has ended. Without it the process serves REST until it is "
    "stopped. Session clusters have no such end.",
    default=True,
)
SHUTDOWN_ON_ATTACHED_EXIT = bool_option(
    "execution.shutdown-on-attached-exit",
    "A process of bin/standalone-job.sh start-foreground stops, as after SIGTERM, when its standard input ends: with "
    "the process that has started it.",
    default=False,
)
JOBMASTER_ADDRESS = host_option(
    "jobmanager.jobmaster.rpc.address", "127.0.0.1", "Host name or address under which a JobMaster process is reached."
)
JOBMASTER_PORT = int_option(
    "jobmanager.jobmaster.rpc.port", 0, "gRPC port of a JobMaster process; 0 picks a free one.", low=0, high=65535
)
JOBMASTER_BIND_HOST = host_option(
    "jobmanager.jobmaster.bind-host", "127.0.0.1", "Interface that a JobMaster process listens on."
)
JOBMASTER_CAPACITY = int_option(
    "jobmanager.jobmaster.capacity", 1000, "Jobs that one JobMaster process takes at the same time.", high=100_000
)
JOBMASTER_SHUTDOWN = choice_option(
    "jobmanager.jobmaster.shutdown",
    "wait",
    "What becomes of the jobs of a JobMaster process that is stopped while no other one has room for them: wait leaves "
    "their tasks running until another process takes the jobs over, stop cancels the jobs. A streaming job finishes "
    "with a savepoint in execution.checkpointing.savepoint-dir instead, where that is set and done in 4 s.",
    "wait",
    "stop",
)
JOBMASTER_WORKER_ID = worker_id_option(
    "jobmanager.jobmaster.worker-id",
    "The label that a driver (resourcemanager.driver) gives to a JobMaster process that it starts.",
)
AUTOSCALE_MIN = int_option(
    "jobmanager.jobmaster.autoscale.min",
    0,
    "JobMaster processes that are kept, without jobs too. With jobmanager.jobmaster.autoscale.max.",
    low=0,
    high=1000,
)
AUTOSCALE_MAX: ConfigOption[int | None] = ConfigOption(
    "jobmanager.jobmaster.autoscale.max",
    int_between(1, 1000),
    None,
    "Most JobMaster processes, those that people start included, up to which the driver (resourcemanager.driver) "
    "starts them by jobs and by load; conf/JOB_MASTERS is not read then. Needs jobmanager.jobmaster.single.enable: "
    "true.",
    "Integer",
    "none: scripts start them",
)
AUTOSCALE_JOBS = int_option(
    "jobmanager.jobmaster.autoscale.jobs-per-process",
    200,
    "Unfinished jobs of one JobMaster process, above which another one is started.",
    high=100_000,
)
AUTOSCALE_LAG = duration_option(
    "jobmanager.jobmaster.autoscale.event-loop-lag",
    "500 ms",
    "How late the event loop of a JobMaster process with several jobs may be, on average, for "
    "jobmanager.jobmaster.autoscale.stabilization.interval, before another one is started.",
    low="10 ms",
)
AUTOSCALE_STABILIZATION = duration_option(
    "jobmanager.jobmaster.autoscale.stabilization.interval",
    "30 s",
    "For how long event loops are late before one more JobMaster process is started, and between two such starts.",
    low="1 s",
)
AUTOSCALE_DOWN = duration_option(
    "jobmanager.jobmaster.autoscale.scale-down.interval",
    "1 min",
    "For how long JobMaster processes are too many before the superfluous ones hand their jobs over and end.",
    low="1 s",
)
REBALANCE = bool_option(
    "jobmanager.jobmaster.rebalance",
    "Move a share of the running jobs to a JobMaster process that registers. Tasks run on meanwhile.",
    default=True,
)
REBALANCE_MAX_MOVES = int_option(
    "jobmanager.jobmaster.rebalance-max-moves",
    5,
    "Jobs that jobmanager.jobmaster.rebalance moves at the same time.",
    high=1000,
)
JOBS_MAX = int_option(
    "jobmanager.max-unfinished-jobs", 20_000, "Jobs that may be unfinished at once; above it submit answers 429."
)
SUBMITS_MAX = int_option(
    "jobmanager.max-pending-submits", 1000, "Submits that may wait for their transaction; above it submit answers 429."
)
JOB_ID_RETENTION = duration_option(
    "jobmanager.job-id.retention",
    "7 d",
    "How long the id of a finished job is remembered, so that it never runs twice.",
    low="0 ms",
)
JOB_ID_MAX = int_option("jobmanager.job-id.max-count", 200_000, "Ids of finished jobs that are remembered at most.")
ARCHIVES_MAX = size_option(
    "jobmanager.archives.max-size",
    "20 gb",
    "Total size of the archives of finished jobs; above it the oldest jobs are forgotten, ids included.",
)
JOBSTORE_MAX = int_option("jobstore.max-capacity", 10_000, "Finished jobs that REST lists at most.")
JOBSTORE_EXPIRATION = duration_option(
    "jobstore.expiration-time", "1 d", "How long REST lists a finished job.", low="0 ms"
)
REST_ADDRESS = host_option("rest.address", "127.0.0.1", "Host name or address under which clients reach REST.")
REST_PORT = int_option("rest.port", 8081, "Port of REST; 0 picks a free one.", low=0, high=65535)
REST_ADDRESSES: ConfigOption[tuple[str, ...]] = ConfigOption(
    "rest.addresses",
    parse_endpoints,
    (),
    "host:port of REST of every JobManager, for the command line, which tries them in turn: each serves all requests. "
    "The command line finds JobManagers of this host without this option.",
    "List",
    "(none)",
)
REST_ALLOWED_HOSTS: ConfigOption[tuple[str, ...]] = ConfigOption(
    "rest.allowed-hosts",
    parse_hosts,
    (),
    "Further names under which browsers reach REST, of a reverse proxy for instance: host, or host:port where the "
    "browser shows a port; * is any host. Pages of other origins (another port of the same host is one) may change "
    "nothing. Without authentication, requests for another host are refused: a page could let its own name lead here. "
    "Addresses, localhost, rest.address and this host's name need not be listed.",
    "List",
    "(none)",
)
REST_BIND_ADDRESS = host_option("rest.bind-address", "127.0.0.1", "Interface that REST listens on.")
REST_SPARK_UI_PORT = int_option(
    "rest.spark-ui.port",
    0,
    "Port of Spark's own pages (taskmanager.spark.ui), which are an origin of their own beside the dashboard; 0 picks "
    "a free one, -1 shows them nowhere. They listen on rest.bind-address, with the certificate of REST.",
    low=-1,
    high=65535,
)
REST_SPARK_UI_ADDRESS: ConfigOption[str] = ConfigOption(
    "rest.spark-ui.address",
    matching(r"(https?://[A-Za-z0-9._:\[\]-]+)?", "http://host:port or https://host:port, without a path"),
    "",
    "Under which browsers reach Spark's own pages, where a reverse proxy is before rest.spark-ui.port: another host or "
    "another port than those of the dashboard.",
    "String",
    "(the host of the dashboard, with rest.spark-ui.port)",
)
REST_MAX_CONTENT = size_option(
    "rest.server.max-content-length",
    "100 mb",
    "Largest request body. A job is limited to 16 mb in any case, a blob by blob.max-size only.",
)
REST_LONG_POLL_MAX = duration_option("rest.long-poll.max-wait", "60 s", "Longest wait of one long poll.", low="0 ms")
WEB_REFRESH_INTERVAL = duration_option(
    "web.refresh-interval",
    "3 s",
    "How often an open page of the dashboard asks for numbers that move. Changes of state come without it.",
    low="500 ms",
)
WEB_FRAME_ANCESTORS: ConfigOption[tuple[str, ...]] = ConfigOption(
    "web.frame-ancestors",
    parse_origins,
    (),
    "Origins whose pages may show the dashboard in a frame, such as https://airflow.example:8080; * are all origins of "
    "the scheme of the dashboard.",
    "List",
    "(none)",
)
