"""Options of durable state: etcd, storage."""

from __future__ import annotations

from runtime.config.option import (
    ConfigOption,
    Secret,
    bool_option,
    choice_option,
    duration_option,
    int_option,
    matching,
    parse_endpoints,
    size_option,
    string_option,
)

HA_TYPE = choice_option(
    "high-availability.type",
    "none",
    "Where jobs, leaders and registrations are kept. `none` keeps them in the JobManager's memory: a restart forgets "
    "every job.",
    "none",
    "etcd",
    refused={
        "zookeeper": "there is no ZooKeeper here: use etcd and high-availability.etcd.endpoints",
        "kubernetes": "there is no Kubernetes backend here: use etcd and high-availability.etcd.endpoints",
    },
)
HA_CLUSTER_ID: ConfigOption[str] = ConfigOption(
    "high-availability.cluster-id",
    matching(r"[A-Za-z0-9._-]+", "a name of letters, digits, '.', '_' and '-'"),
    "default",
    "Name of this cluster below /flinklike/ in etcd.",
    "String",
)
HA_STORAGE_DIR = string_option(
    "high-availability.storageDir",
    "",
    "Directory URL (local path or any fsspec URL) for blobs, large job graphs and archives. With more than one host it "
    "must be shared.",
    default_text="<run>/storage",
)
ETCD_ENDPOINTS: ConfigOption[tuple[str, ...]] = ConfigOption(
    "high-availability.etcd.endpoints",
    parse_endpoints,
    (),
    "host:port of each etcd member.",
    "List",
    "(none)",
)
ETCD_EMBEDDED = bool_option(
    "high-availability.etcd.embedded",
    "start-cluster.sh runs a single etcd on this host, with its data and certificates under the run directory. For one "
    "host only.",
    default=False,
)
ETCD_EMBEDDED_PORT = int_option(
    "high-availability.etcd.embedded.port",
    0,
    "Client port of the embedded etcd; 0 picks a free one.",
    low=0,
    high=65535,
)
ETCD_USERNAME = string_option("high-availability.etcd.username", "", "etcd user.")
ETCD_PASSWORD: ConfigOption[Secret] = ConfigOption(
    "high-availability.etcd.password", Secret, Secret(""), "etcd password.", "String", "(none)", is_secret=True
)
ETCD_TLS_CA = string_option(
    "high-availability.etcd.tls.ca", "", "PEM file of the CA of etcd's certificate; turns on TLS."
)
ETCD_TLS_CERT = string_option("high-availability.etcd.tls.cert", "", "PEM file of our client certificate (mutual TLS).")
ETCD_TLS_KEY = string_option("high-availability.etcd.tls.key", "", "PEM file of the key of that certificate.")
ETCD_ALLOW_UNAUTHENTICATED = bool_option(
    "high-availability.etcd.allow-unauthenticated",
    "Use an external etcd without a client certificate and without a user: every client that reaches it can run code "
    "in this cluster.",
    default=False,
)
ETCD_ACCEPT_UNSEALED = bool_option(
    "high-availability.etcd.accept-unsealed-records",
    "For the time of an upgrade from a release that did not seal its records (docs/operations.md): also use records in "
    "etcd without a seal of security.cluster-key-file.",
    default=False,
)
ETCD_TIMEOUT = duration_option("high-availability.etcd.timeout", "3 s", "Deadline of one etcd request.")
ETCD_QUOTA = size_option(
    "high-availability.etcd.quota",
    "2 gb",
    "etcd's --quota-backend-bytes, for etcd before 3.6, which does not report it: at 80 % of it submit answers 507.",
)
ETCD_ALLOW_UNSAFE = bool_option(
    "high-availability.etcd.allow-unsafe-version",
    "Accept an external etcd 3.5.0 to 3.5.2, which can lose consistency after a crash.",
    default=False,
)
LEASE_TIMEOUT = duration_option(
    "high-availability.lease-timeout",
    "5 s",
    "A leader or JobMaster process that is silent this long has lost its role. A process that runs while its event "
    "loop stands still keeps its role for three times as long.",
)
BLOB_MAX_SIZE = size_option("blob.max-size", "1 gb", "Largest blob that is accepted.")
BLOB_CACHE_SIZE = size_option("blob.cache.max-size", "4 gb", "Bound of each process's local blob cache.")
