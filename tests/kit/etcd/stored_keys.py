"""What a real cluster has in its etcd, as tests look at it: which process wrote when, by the revisions of keys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from runtime.aio.clock import SystemClock
from runtime.aio.entropy import SystemEntropy
from runtime.entrypoint.control import embedded_etcd as embedded
from runtime.entrypoint.control.embedded_etcd import EmbeddedEtcdSettings
from runtime.highavailability.etcd.settings import EtcdSettings
from runtime.highavailability.etcd.store import EtcdKeyValueStore
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import Delete, KeyValueStore, Txn
from tests.kit.cluster.script_cluster import ScriptCluster

T = TypeVar("T")
KEYS = Keys.of_cluster("default")


def etcd_settings(cluster: ScriptCluster) -> EtcdSettings:
    """How its processes reach its embedded etcd."""
    settings = EmbeddedEtcdSettings(cluster.run / "run" / "etcd", cluster.run / "run" / "log" / "etcd.log")
    running = embedded.running(settings)
    assert running is not None
    client = str(settings.tls.client)
    return EtcdSettings(
        (running.endpoint,), tls_ca=str(settings.tls.ca), tls_cert=client, tls_key=client, allow_unsafe_version=True
    )


def ask_store(cluster: ScriptCluster, question: Callable[[KeyValueStore], Awaitable[T]]) -> T:
    """Its answer, from the embedded etcd of a cluster."""

    async def ask() -> T:
        kv = EtcdKeyValueStore(etcd_settings(cluster), SystemClock(), SystemEntropy())
        await kv.open(timeout=5.0)
        try:
            return await question(kv)
        finally:
            await kv.close()

    return asyncio.run(ask())


def revisions(cluster: ScriptCluster, *prefixes: str) -> dict[str, int]:
    """The revision that wrote each key below these."""

    async def read(kv: KeyValueStore) -> dict[str, int]:
        answers = [await kv.range(prefix, is_prefix=True, timeout=5.0) for prefix in prefixes]
        return {one.key: one.mod_revision for answer in answers for one in answer.kvs}

    return ask_store(cluster, read)


def delete_key(cluster: ScriptCluster, key: str) -> None:
    """As a person does it by hand."""

    async def delete(kv: KeyValueStore) -> None:
        await kv.txn(Txn((), (Delete(key),)), timeout=5.0)

    ask_store(cluster, delete)
