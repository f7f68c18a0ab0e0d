"""The driver against a real etcd that is killed, frozen, full, compacted, or wants a login or certificates."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.common import watched
from runtime.common.errors import (
    InvalidInputError,
    OutcomeUnknownError,
    StorageExhaustedError,
    UnauthenticatedError,
    UnavailableError,
)
from runtime.entrypoint.control.embedded_certificates import ensure_certificates
from runtime.highavailability.etcd import generate
from runtime.highavailability.etcd.settings import EtcdSettings, UnsafeEtcdVersionError, check_version
from runtime.highavailability.etcd.store import EtcdKeyValueStore
from runtime.highavailability.kv.compaction import HISTORY_SECONDS, Compactor
from runtime.highavailability.kv.conditions import absent
from runtime.highavailability.kv.key_value_store import Get, KeyValueStore, Put, Txn
from runtime.highavailability.kv.lease import Lease, LeaseSettings
from tests.kit.control_plane.virtual_time import ManualClock
from tests.kit.etcd.server import EtcdProcess
from tests.kit.host.tcp_proxy import TcpProxy
from tests.kit.services.certificates import CertificateAuthority

TIMEOUT = 5.0

pytestmark = [pytest.mark.etcd]


@asynccontextmanager
async def opened(store: EtcdKeyValueStore) -> AsyncIterator[EtcdKeyValueStore]:
    try:
        await store.open(timeout=TIMEOUT)
        yield store
    finally:
        await store.close()


async def put(kv: KeyValueStore, key: str, value: bytes = b"", *, timeout: float = TIMEOUT) -> int:
    return (await kv.txn(Txn((), (Put(key, value),)), timeout=timeout)).revision


async def put_until_it_works(kv: KeyValueStore, key: str) -> int:
    async with asyncio.timeout(100):
        while True:
            try:
                return await put(kv, key, timeout=1.0)
            except (UnavailableError, OutcomeUnknownError):
                await asyncio.sleep(0.05)


class Watching:
    """A watch that runs beside the test."""

    def __init__(self, kv: KeyValueStore, prefix: str, start_revision: int) -> None:
        self._kv = kv
        self._prefix = prefix
        self._start_revision = start_revision
        self.keys: list[str] = []
        self.revisions: list[int] = []
        self._changed = asyncio.Event()

    async def run(self) -> None:
        async for batch in self._kv.watch(self._prefix, start_revision=self._start_revision):
            self.keys += [event.kv.key for event in batch.events]
            self.revisions += [event.kv.mod_revision for event in batch.events]
            self._changed.set()

    @property
    def distinct_keys(self) -> list[str]:
        """A put whose answer was lost is repeated by these tests, so a key may come twice."""
        return list(dict.fromkeys(self.keys))

    async def wait_for(self, key: str, *, timeout: float = 100.0) -> None:
        async with asyncio.timeout(timeout):
            while key not in self.keys:
                self._changed.clear()
                await self._changed.wait()


# --- outages ------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_kill_and_restart_lose_no_event_and_no_lease(own_etcd: EtcdProcess) -> None:
    async with opened(own_etcd.store()) as kv:
        lease = await kv.grant_lease(30, timeout=TIMEOUT)
        start = await put(kv, "/w/0")
        watching = Watching(kv, "/w/", start)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(watching.run())
            await watching.wait_for("/w/0")
            own_etcd.kill()
            with pytest.raises((UnavailableError, OutcomeUnknownError)):
                await put(kv, "/w/x")
            with pytest.raises(UnavailableError):
                await kv.range("/w/", is_prefix=True, timeout=1.0)
            own_etcd.start()
            # Written by another client while our watch is still away.
            own_etcd.ctl("put", "/w/1", "meanwhile")
            await put_until_it_works(kv, "/w/2")
            await watching.wait_for("/w/2")
            assert watching.distinct_keys == ["/w/0", "/w/1", "/w/2"]
            assert watching.revisions == sorted(set(watching.revisions))
            assert await kv.keep_lease_alive(lease, timeout=TIMEOUT) == 30
            task.cancel()


@pytest.mark.asyncio
async def test_a_write_into_a_frozen_etcd_has_an_unknown_outcome_and_a_read_has_none(own_etcd: EtcdProcess) -> None:
    async with opened(own_etcd.store()) as kv:
        start = await put(kv, "/w/0")
        watching = Watching(kv, "/w/", start)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(watching.run())
            await watching.wait_for("/w/0")
            own_etcd.freeze()
            create = Txn((absent("/w/1"),), (Put("/w/1", b"ours"),), (Get("/w/1"),))
            with pytest.raises(OutcomeUnknownError):
                await kv.txn(create, timeout=0.5)
            with pytest.raises(UnavailableError):
                await kv.range("/w/", is_prefix=True, timeout=0.5)
            with pytest.raises(UnavailableError):
                await kv.keep_lease_alive(1, timeout=0.5)
            own_etcd.thaw()
            await put_until_it_works(kv, "/w/2")
            # R2: the identical transaction settles it, whichever way it went.
            settled = await kv.txn(create, timeout=TIMEOUT)
            assert settled.succeeded or settled.results[0].kvs[0].value == b"ours"
            await watching.wait_for("/w/2")
            await watching.wait_for("/w/1")
            assert sorted(watching.distinct_keys) == ["/w/0", "/w/1", "/w/2"]
            task.cancel()


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_frozen_endpoint_is_noticed_by_an_idle_watch_which_moves_to_the_next(tmp_path: Path) -> None:
    """Two etcds that know nothing of each other stand for two members: only the driver's rotation is looked at."""
    first, second = EtcdProcess(tmp_path / "1"), EtcdProcess(tmp_path / "2")
    try:
        first.start()
        shutil.copytree(first.tls.directory, second.tls.directory)  # one CA, as for members
        second.start()
        settings = first.settings(first.endpoint, second.endpoint)
        async with opened(EtcdKeyValueStore(settings, LoopClock(), SystemEntropy())) as kv:
            watching = Watching(kv, "/w/", 2)
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(watching.run())
                await put(kv, "/w/0")
                await watching.wait_for("/w/0")
                first.freeze()
                second.ctl("put", "/w/0", "x")
                second.ctl("put", "/w/1", "x")
                # Pings every 10 s, answered within 3 s: without ping_timeout_ms this takes over a minute.
                await watching.wait_for("/w/1", timeout=18)
                task.cancel()
    finally:
        first.stop()
        second.stop()


@pytest.mark.asyncio
async def test_a_dead_endpoint_is_passed_over(own_etcd: EtcdProcess) -> None:
    settings = own_etcd.settings("127.0.0.1:1", own_etcd.endpoint)
    async with opened(EtcdKeyValueStore(settings, LoopClock(), SystemEntropy())) as kv:
        await put(kv, "/a")
        assert (await kv.range("/a", is_prefix=False, timeout=TIMEOUT)).kvs
    nowhere = EtcdSettings(("127.0.0.1:1", "127.0.0.1:2"))
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1, 127\.0\.0\.1:2"):
        async with opened(EtcdKeyValueStore(nowhere, LoopClock(), SystemEntropy())):
            raise AssertionError


@pytest.mark.asyncio
async def test_a_frozen_member_costs_no_lease(own_etcd: EtcdProcess) -> None:
    frozen = TcpProxy(int(own_etcd.endpoint.rpartition(":")[2]))
    try:
        settings = own_etcd.settings(await frozen.start(), own_etcd.endpoint)
        async with opened(EtcdKeyValueStore(settings, LoopClock(), SystemEntropy())) as kv:
            lease = await Lease.grant(kv, LoopClock(), LeaseSettings(ttl=3, timeout=3.0))
            frozen.freeze()
            # Longer than the lease lives without a renewal: keep_alive raises LeaseLostError then.
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(4.0):
                    await lease.keep_alive()
            lease.check()
    finally:
        await frozen.kill()


async def fill(kv: KeyValueStore) -> None:
    for _ in range(100):
        await put(kv, "/a", bytes(200_000))


# --- quota --------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_full_etcd_says_so_and_is_usable_again_after_compaction(tmp_path: Path) -> None:
    process = EtcdProcess(tmp_path, extra_arguments=("--quota-backend-bytes=4000000",))
    try:
        process.start()
        async with opened(process.store()) as kv:
            with pytest.raises(StorageExhaustedError):
                await fill(kv)
            status = await kv.status(timeout=TIMEOUT)
            await kv.compact(status.revision, timeout=TIMEOUT)
            await kv.defragment(timeout=TIMEOUT)
            assert await put(kv, "/a", b"small") > status.revision
            assert (await kv.status(timeout=TIMEOUT)).size_bytes < status.size_bytes
    finally:
        process.stop()


@pytest.mark.asyncio
async def test_an_etcd_of_ours_gives_the_space_of_forgotten_history_back_when_it_is_idle(own_etcd: EtcdProcess) -> None:
    clock = ManualClock()
    async with opened(own_etcd.store()) as kv:
        compactor = Compactor(kv, clock, timeout=TIMEOUT, defragments_when_idle=True)
        for _ in range(60):
            await kv.txn(Txn((), tuple(Put(f"/{number}", bytes(10_000)) for number in range(100))), timeout=TIMEOUT)
        before = after = await compactor.activate()
        assert before.size_bytes > 30_000_000, "60 MB, of which etcd writes the last ones in the background"
        async with asyncio.timeout(100):  # etcd forgets in the background
            while not after.has_defragmented:
                clock.advance(HISTORY_SECONDS / 4)
                after = await compactor.activate()
                await asyncio.sleep(0.1)
        # More than half was wasted, or it would have waited; etcd may not have forgotten all of it by then.
        assert after.size_bytes <= before.size_bytes / 2
        assert await put(kv, "/a", b"x") > before.revision


# --- login --------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded_etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    """With users: root, and bob who may only use /allowed/. Tokens live for a second."""
    process = EtcdProcess(tmp_path, extra_arguments=("--auth-token-ttl=1", "--log-level=info"))
    try:
        process.start()
        for command in (
            "user add root:secret",
            "user grant-role root root",
            "role add some",
            "role grant-permission some --prefix=true readwrite /allowed/",
            "user add bob:bobs",
            "user grant-role bob some",
            "auth enable",
        ):
            process.ctl(*command.split())
        yield process
    finally:
        process.stop()


async def until_a_token_expires(process: EtcdProcess) -> None:
    """etcd logs each token that it forgets."""
    log = process.directory / "etcd.log"

    def forgotten() -> int:
        return log.read_text().count("deleted a simple token")

    before = forgotten()
    async with asyncio.timeout(100):
        while forgotten() == before:
            await asyncio.sleep(0.05)


@pytest.mark.asyncio
async def test_users_and_tokens_that_expire(guarded_etcd: EtcdProcess) -> None:
    async with opened(guarded_etcd.store(username="bob", password="bobs")) as kv:
        start = await put(kv, "/allowed/0")
        watching = Watching(kv, "/allowed/", start)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(watching.run())
            await watching.wait_for("/allowed/0")
            await until_a_token_expires(guarded_etcd)
            await put(kv, "/allowed/1")
            await watching.wait_for("/allowed/1")
            await until_a_token_expires(guarded_etcd)
            later = Watching(kv, "/allowed/", start)
            other = tasks.create_task(later.run())
            await later.wait_for("/allowed/1")
            task.cancel()
            other.cancel()
        with pytest.raises(UnauthenticatedError):
            await put(kv, "/forbidden/0")
        with pytest.raises(UnauthenticatedError):
            async with asyncio.timeout(TIMEOUT):
                await Watching(kv, "/forbidden/", 1).run()
        lease = await kv.grant_lease(10, timeout=TIMEOUT)
        assert await kv.keep_lease_alive(lease, timeout=TIMEOUT) == 10


@pytest.mark.asyncio
async def test_a_change_of_rights_is_survived(guarded_etcd: EtcdProcess) -> None:
    async with opened(guarded_etcd.store(username="bob", password="bobs")) as kv:
        await put(kv, "/allowed/0")
        guarded_etcd.ctl("--user=root:secret", "role", "add", "another")
        await put(kv, "/allowed/1")


@pytest.mark.parametrize("login", [{}, {"username": "bob", "password": "wrong"}], ids=["none", "wrong"])
@pytest.mark.asyncio
async def test_a_wrong_login_is_refused(guarded_etcd: EtcdProcess, login: dict[str, str]) -> None:
    with pytest.raises(UnauthenticatedError):
        async with opened(guarded_etcd.store(**login)) as kv:
            await put(kv, "/allowed/0")


def test_the_password_is_in_no_repr() -> None:
    assert "geheim" not in repr(EtcdSettings(("a:1",), username="bob", password="geheim"))


# --- TLS ----------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_certificates_are_renewed_while_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R47: what was shown before is refused by an etcd that has forgotten its CA, and nobody was started again."""
    monkeypatch.setattr(watched, "LOOK_SECONDS", 0.0)
    old, new = CertificateAuthority(tmp_path, "old CA"), CertificateAuthority(tmp_path, "new CA")
    trusted, shown = tmp_path / "trusted.pem", tmp_path / "client.pem"
    etcd = EtcdProcess(tmp_path / "etcd", extra_arguments=(f"--trusted-ca-file={trusted}",))

    def trust(*cas: CertificateAuthority) -> None:
        trusted.write_bytes(b"".join(one.cert.read_bytes() for one in cas) + etcd.tls.ca.read_bytes())

    shutil.copyfile(old.issue("client-old").cert, shown)
    ensure_certificates(etcd.tls, datetime.now(UTC))
    trust(old, new)
    etcd.start()
    try:
        settings = etcd.settings(tls_cert=str(shown), tls_key=str(shown))
        async with opened(EtcdKeyValueStore(settings, LoopClock(), SystemEntropy())) as kv:
            watching = Watching(kv, "/w/", await put(kv, "/w/0") + 1)
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(watching.run())
                new.issue("client-new").cert.replace(shown)
                await put(kv, "/w/1")
                trust(new)
                etcd.kill()
                etcd.start()
                await put_until_it_works(kv, "/w/2")
                await watching.wait_for("/w/2")
                assert sorted(watching.distinct_keys) == ["/w/1", "/w/2"]
                task.cancel()
    finally:
        etcd.stop()


@pytest.mark.asyncio
async def test_mutual_tls(own_etcd: EtcdProcess, tmp_path: Path) -> None:
    """R37. Files of a certificate and its key may be two, or one."""
    stranger = CertificateAuthority(tmp_path, "another CA")
    wrong = stranger.issue("wrong")
    ca, client = str(own_etcd.tls.ca), own_etcd.tls.client.read_bytes()
    (tmp_path / "client.cert").write_bytes(client[: client.index(b"-----BEGIN PRIVATE KEY")])
    (tmp_path / "client.key").write_bytes(client[client.index(b"-----BEGIN PRIVATE KEY") :])
    for ours in ({}, {"tls_cert": str(tmp_path / "client.cert"), "tls_key": str(tmp_path / "client.key")}):
        async with opened(own_etcd.store(**ours)) as kv:
            start = await put(kv, "/a")
            watching = Watching(kv, "/", start)
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(watching.run())
                await watching.wait_for("/a")
                task.cancel()
    none = {"tls_cert": "", "tls_key": ""}
    for refused in (
        {**none, "tls_ca": ""},
        {**none, "tls_ca": ca},
        {"tls_ca": ca, "tls_cert": str(wrong.cert), "tls_key": str(wrong.key)},
        {"tls_ca": str(stranger.cert)},
    ):
        with pytest.raises(UnavailableError):
            async with opened(own_etcd.store(**refused)):
                raise AssertionError(refused)
    with pytest.raises(UnavailableError, match=r"CERTIFICATE_VERIFY_FAILED"):
        async with opened(own_etcd.store(tls_ca=str(stranger.cert))):
            raise AssertionError


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"tls_ca": "missing"}, r"etcd\.tls\.ca: .*missing cannot be read \(No such file or directory\)"),
        ({"tls_ca": "."}, r"etcd\.tls\.ca: .* cannot be read"),
        ({"tls_ca": "text"}, r"etcd\.tls\.ca: .*text holds no certificate in PEM form"),
        ({"tls_ca": "pem", "tls_cert": "pem", "tls_key": "pem"}, r"etcd\.tls\.key: .*pem holds no private key"),
        ({"tls_ca": "pem", "tls_cert": "text", "tls_key": "key"}, r"etcd\.tls\.cert: .*text holds no certificate"),
    ],
)
@pytest.mark.asyncio
async def test_files_that_are_no_certificates_are_named(tmp_path: Path, changes: dict[str, str], problem: str) -> None:
    (tmp_path / "text").write_text("no certificate")
    (tmp_path / "pem").write_text("-----BEGIN CERTIFICATE-----\n")
    (tmp_path / "key").write_text("-----BEGIN EC PRIVATE KEY-----\n")
    files = {name: str(tmp_path / value) for name, value in changes.items()}
    settings = replace(EtcdSettings(("127.0.0.1:1",)), **files)  # type: ignore[arg-type]  # fields that hold text
    with pytest.raises(InvalidInputError, match=problem):
        await EtcdKeyValueStore(settings, LoopClock(), SystemEntropy()).open(timeout=TIMEOUT)


# --- versions and generated code ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "is_safe"),
    [("3.4.23", True), ("3.5.0", False), ("3.5.1", False), ("3.5.2", False), ("3.5.3", True), ("3.5.10", True)],
)
def test_unsafe_versions(version: str, *, is_safe: bool) -> None:
    check_version(version, endpoint="a:1", allow_unsafe=True)
    if is_safe:
        check_version(version, endpoint="a:1", allow_unsafe=False)
        return
    with pytest.raises(UnsafeEtcdVersionError, match="allow-unsafe-version"):
        check_version(version, endpoint="a:1", allow_unsafe=False)


@pytest.mark.asyncio
async def test_an_unsafe_etcd_is_refused_at_open(own_etcd: EtcdProcess) -> None:
    if not own_etcd.ctl("version").startswith("etcdctl version: 3.5.1"):
        pytest.skip("this etcd is a safe one")
    with pytest.raises(UnsafeEtcdVersionError, match=own_etcd.endpoint):
        async with opened(own_etcd.store(allow_unsafe_version=False)):
            raise AssertionError


def test_generated_code_is_fresh(tmp_path: Path) -> None:
    generate.generate(tmp_path)
    for made in tmp_path.iterdir():
        assert made.read_text() == (generate.GENERATED / made.name).read_text(), made.name


@pytest.mark.asyncio
async def test_each_endpoint_says_itself_whether_it_answers(own_etcd: EtcdProcess) -> None:
    settings = own_etcd.settings(own_etcd.endpoint, "127.0.0.1:1")
    async with opened(EtcdKeyValueStore(settings, LoopClock(), SystemEntropy())) as kv:
        there, away = await kv.members(timeout=TIMEOUT)
    assert (there.endpoint, there.problem, there.is_leader) == (own_etcd.endpoint, "", True)
    assert there.version.startswith("3.")
    assert there.size_bytes > 0
    assert (away.endpoint, away.version, away.is_leader) == ("127.0.0.1:1", "", False)
    assert "127.0.0.1:1" in away.problem
