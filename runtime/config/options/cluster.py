"""Options of the whole cluster: transport, heartbeats, logs."""

from __future__ import annotations

from runtime.config.option import (
    ConfigOption,
    bool_option,
    choice_option,
    duration_option,
    int_option,
    parse_command_words,
    size_option,
)

HEARTBEAT_INTERVAL = duration_option("heartbeat.interval", "2 s", "A silent peer is sent a heartbeat this often.")
HEARTBEAT_TIMEOUT = duration_option(
    "heartbeat.timeout", "10 s", "A peer not heard of for this long is lost. At least twice the interval."
)
TRUST_CONNECTION_REFUSED = bool_option(
    "cluster.trust-connection-refused",
    "A refused connection at the address of a JobManager or JobMaster process proves that the process is dead. Turn it "
    "off where a firewall refuses connections in place of living hosts: then leases and timeouts find dead processes. "
    "For a TaskManager a refusal proves nothing: its guards state its end.",
    default=True,
)
RPC_TIMEOUT = duration_option("rpc.timeout", "10 s", "Deadline of one call between processes.")
RPC_MAX_MESSAGE_SIZE = size_option(
    "rpc.max-message-size",
    "4 mb",
    "Largest single message between processes; larger content goes through files. Processes cut their messages for the "
    "default, which is the minimum.",
    low="4 mb",
)
RPC_OUTBOX_MAX = int_option(
    "rpc.stream.max-queued-messages", 100_000, "Messages that may wait on one stream before its sender is refused."
)
LOG_LEVEL = choice_option("env.log.level", "INFO", "Root log level.", "DEBUG", "INFO", "WARNING", "ERROR")
LOG_FORMAT = choice_option(
    "env.log.format",
    "text",
    "Format of the logs of processes. json is one object a line, with `time` (UTC), `level`, `logger`, `process`, "
    "`pid`, `host`, `message` and `exception`, and with `job`, `vertex` and `attempt` where the message names one. "
    "Spark and etcd log as before.",
    "text",
    "json",
)
LOG_MAX = int_option("env.log.max", 10, "Rotated log files kept per process, 100 MB each.", low=2, high=1000)
SSH_OPTS = ConfigOption(
    "env.ssh.opts",
    parse_command_words,
    "",
    "Extra ssh options of start-cluster.sh, stop-cluster.sh and resourcemanager.driver: ssh, quoted as in a shell.",
    "String",
    "(none)",
)
