"""Rules of `spark.master` and what stands beside it. Each yields sentences that say what to change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from runtime.common.spark_conf import is_ignored, is_static
from runtime.common.spark_masters import (
    DEFAULT_MASTER,
    EXPECTED,
    SPARK_MASTER,
    MasterKind,
    connect_host,
    connect_parameters,
    has_tls,
    kind_of,
)
from runtime.config.configuration import Configuration
from runtime.config.option import ConfigOption
from runtime.config.options import taskmanager as tm

_K8S = "spark.kubernetes"
_IMAGES = (f"{_K8S}.container.image", f"{_K8S}.executor.container.image")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_OF_A_JVM: tuple[ConfigOption[Any], ...] = (
    tm.SPARK_MEMORY,
    tm.SPARK_MEMORY_TOTAL,
    tm.SPARK_WAREHOUSE,
    tm.SPARK_WARM_UP,
    tm.SPARK_CLASS_ARCHIVE,
    tm.SPARK_UI,
    tm.SPARK_USER,
    tm.SLOT_ISOLATION,
    tm.SPARK_NETWORK_ENCRYPTION,
)
"""Options about the driver JVM of a TaskManager."""
_PARAMETERS_OF_OURS = {
    "token": f"write it into a file, and name that in {tm.SPARK_SECRET_FILE.key}: the master is shown to people",
    "user_id": "the TaskManager sets it",
    "session_id": "each slot has a session of its own",
}


def conflicts(configuration: Configuration) -> Iterator[str]:
    """What is wrong with the master, or contradicts it."""
    master = configuration.spark_conf.get(SPARK_MASTER, DEFAULT_MASTER)
    kind = kind_of(master)
    if kind is None:
        yield f"{SPARK_MASTER}: {master!r}: {EXPECTED}"
        return
    if not configuration.get(tm.SPARK_ENABLED):
        return
    yield from _secret(configuration, master, kind)
    match kind:
        case MasterKind.CONNECT:
            yield from _connect(configuration, master)
        case MasterKind.KUBERNETES:
            yield from _kubernetes(configuration, master)
            yield from _reached(configuration, master)
        case MasterKind.YARN:
            yield from _reached(configuration, master)
        case _:
            return


def _connect(configuration: Configuration, master: str) -> Iterator[str]:
    for name, value in connect_parameters(master).items():
        if name in _PARAMETERS_OF_OURS:
            yield f"{SPARK_MASTER}: a Spark Connect address with {name}=: {_PARAMETERS_OF_OURS[name]}"
        elif name != "use_ssl" or value.lower() not in {"true", "false"}:
            yield f"{SPARK_MASTER}: {master}: only use_ssl=true or use_ssl=false may stand behind the address"
    if configuration.get(tm.SPARK_SECRET_FILE) and not has_tls(master) and connect_host(master) != "localhost":
        yield (
            f"{SPARK_MASTER}: {master} with {tm.SPARK_SECRET_FILE.key}: PySpark sends a token by TLS only, but for "
            "sc://localhost: put a proxy with TLS in front of the server, and ;use_ssl=true behind its address "
            "(sc://host:port/;use_ssl=true)"
        )
    for option in _OF_A_JVM:
        if configuration.has(option):
            yield (
                f"{option.key} has no effect with {SPARK_MASTER}: {master}: a TaskManager that is the client of a "
                "Spark Connect server has no JVM: remove it"
            )
    static = [key for key in configuration.spark_conf if key != SPARK_MASTER and (is_static(key) or is_ignored(key))]
    for key in sorted(static):
        yield f"{key} has no effect with {SPARK_MASTER}: {master}: start the Spark Connect server with it instead"


def _kubernetes(configuration: Configuration, master: str) -> Iterator[str]:
    conf = configuration.spark_conf
    if not any(conf.get(key) for key in _IMAGES):
        yield (
            f"{SPARK_MASTER}: {master} needs {_IMAGES[0]}: the image of executors, with the same Spark and Python "
            "as here"
        )
    if not conf.get(f"{_K8S}.namespace"):
        yield f"{SPARK_MASTER}: {master} needs {_K8S}.namespace: where executors are started"
    if configuration.get(tm.TASKMANAGER_HOST) in _LOOPBACK:
        yield (
            f"{SPARK_MASTER}: {master} needs {tm.TASKMANAGER_HOST.key}: executors in pods dial the driver at it, and "
            f"{configuration.get(tm.TASKMANAGER_HOST)} leads them to themselves"
        )


def _reached(configuration: Configuration, master: str) -> Iterator[str]:
    """An address that others are told, where nothing listens: executors would start and end without a word here."""
    host, bound = configuration.get(tm.TASKMANAGER_HOST), configuration.get(tm.TASKMANAGER_BIND_HOST)
    if host not in _LOOPBACK and bound in _LOOPBACK:
        yield (
            f"{SPARK_MASTER}: {master}: executors do not reach the driver at {tm.TASKMANAGER_BIND_HOST.key}: {bound}: "
            "set that to 0.0.0.0"
        )


def _secret(configuration: Configuration, master: str, kind: MasterKind) -> Iterator[str]:
    """R44: a driver that other hosts can dial asks for a secret, or an option allows it not to."""
    file, may_be_open = configuration.get(tm.SPARK_SECRET_FILE), configuration.get(tm.SPARK_ALLOW_UNAUTHENTICATED)
    if kind.makes_secrets:
        for option, is_set in ((tm.SPARK_SECRET_FILE, bool(file)), (tm.SPARK_ALLOW_UNAUTHENTICATED, may_be_open)):
            if is_set:
                yield (
                    f"{option.key} is for spark.master spark://... and sc://...: with {master} each driver makes a "
                    "secret of its own"
                )
        return
    if file and may_be_open:
        yield f"{tm.SPARK_SECRET_FILE.key} and {tm.SPARK_ALLOW_UNAUTHENTICATED.key} contradict each other: set one"
    elif not file and not may_be_open:
        yield _needs_token(master) if kind is MasterKind.CONNECT else _needs_secret(master)
    if not file and configuration.get(tm.SPARK_NETWORK_ENCRYPTION):
        yield f"{tm.SPARK_NETWORK_ENCRYPTION.key} needs {tm.SPARK_SECRET_FILE.key}: its keys are made from the secret"


def _needs_secret(master: str) -> str:
    return (
        f"spark.master {master} needs {tm.SPARK_SECRET_FILE.key}, the secret that its master and workers were started "
        "with (spark.authenticate): without one every client that reaches the driver's ports runs code as the "
        f"TaskManager's user. If that cannot happen in your network, set {tm.SPARK_ALLOW_UNAUTHENTICATED.key}: true"
    )


def _needs_token(master: str) -> str:
    return (
        f"spark.master {master} needs {tm.SPARK_SECRET_FILE.key}, the token of the Spark Connect server "
        "(spark.connect.authenticate.token): without one every client that reaches its port runs code as its user. "
        f"If that cannot happen in your network, set {tm.SPARK_ALLOW_UNAUTHENTICATED.key}: true"
    )
