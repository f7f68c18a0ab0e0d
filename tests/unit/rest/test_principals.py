"""R48: principals in the store, as JobManagers know them: made, rotated, revoked, ended, and on all of them at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import pytest_asyncio

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.common.clock import Clock
from runtime.common.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    UnauthenticatedError,
    UnavailableError,
)
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv import follower
from runtime.highavailability.kv.key_value_store import Delete, KeyValueStore, Put, Txn
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.principals import FollowedPrincipals, PrincipalStore
from runtime.highavailability.record_codec import refused
from runtime.rest.access.principals import Principals
from runtime.rest.access.sign_in import TokenSignIn
from runtime.security.principals import ADMIN, Principal, Role
from runtime.security.tokens import new_cluster_token
from tests.kit.etcd.faulty_kv import FaultyKeyValueStore

pytestmark = pytest.mark.asyncio

KEYS = Keys.of_cluster("test")
SAM = Principal("sam", Role.SUBMITTER, "team-a")


class SteppedClock(LoopClock):
    """Real, and moved by hand."""

    ahead = 0

    def epoch_millis(self) -> int:
        return super().epoch_millis() + self.ahead


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest_asyncio.fixture
async def kv() -> AsyncIterator[MemoryKeyValueStore]:
    store = MemoryKeyValueStore(LoopClock())
    yield store
    await store.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def job_manager(kv: KeyValueStore, clock: Clock) -> AsyncIterator[Principals]:
    """One that has read the store."""
    made = Principals(PrincipalStore(kv, KEYS, SystemEntropy(), timeout=5), clock)
    with pytest.raises(UnavailableError, match="ask again"):
        made.find("anything")
    running = asyncio.create_task(made.run())
    try:
        await until(lambda: made._is_loaded)
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_token_signs_in_until_it_is_revoked(kv: MemoryKeyValueStore, clock: SteppedClock) -> None:
    async with job_manager(kv, clock) as leader, job_manager(kv, clock) as stand_by:
        made = await leader.create("sam", Role.SUBMITTER, "team-a", expires_millis=0)
        assert leader.find(made.token) == SAM, "by who has made it, at once"
        await until(lambda: stand_by.find(made.token) == SAM)
        await leader.revoke("sam")
        assert leader.find(made.token) is None, "by who has revoked it, at once"
        await until(lambda: stand_by.find(made.token) is None)
        assert [one.tokens for one in stand_by.records()] == [()]
        await leader.revoke("sam")


@pytest.fixture
def deaf(kv: MemoryKeyValueStore, monkeypatch: pytest.MonkeyPatch) -> FaultyKeyValueStore:
    """The same store, for who hears of no change: its watch lags behind."""
    monkeypatch.setattr(follower, "LOOK_SECONDS", 3600.0)
    made = FaultyKeyValueStore(kv)
    made.changes_lost = 1 << 30
    return made


async def test_who_begins_a_term_knows_what_the_leader_before_has_revoked(
    kv: MemoryKeyValueStore, deaf: FaultyKeyValueStore, clock: SteppedClock
) -> None:
    async with job_manager(kv, clock) as leader:
        made = await leader.create("sam", Role.SUBMITTER, "team-a", expires_millis=0)
        gone = await leader.create("sue", Role.SUBMITTER, "team-a", expires_millis=0)
        async with job_manager(deaf, clock) as next_leader:
            await leader.revoke("sam")
            await leader.revoke("sue")
            await leader.forget("sue")
            assert next_leader.find(made.token) == SAM, "it has not heard of it, and may say so while it stands by"
            async with asyncio.timeout(20):
                await next_leader.catch_up()
            assert [next_leader.find(one.token) for one in (made, gone)] == [None, None]
            assert not next_leader.has("sue")
            later = await leader.create("tom", Role.SUBMITTER, "team-a", expires_millis=0)
            async with asyncio.timeout(20):
                await next_leader.catch_up()
            assert next_leader.find(later.token) is not None


async def test_who_leads_again_knows_what_was_forgotten_of_its_own_meanwhile(
    kv: MemoryKeyValueStore, deaf: FaultyKeyValueStore, clock: SteppedClock
) -> None:
    """It was cut off right after its answer, before the store had told it of that."""
    async with job_manager(deaf, clock) as first, job_manager(kv, clock) as second:
        made = await first.create("sam", Role.ADMIN, "*", expires_millis=0)
        assert first.find(made.token) is not None
        await second.catch_up()
        await second.revoke("sam")
        await second.forget("sam")
        async with asyncio.timeout(20):
            await first.catch_up()
        assert first.find(made.token) is None
        assert not first.has("sam")


async def test_what_was_made_and_forgotten_within_one_look_is_not_held_for_ever(
    kv: MemoryKeyValueStore, deaf: FaultyKeyValueStore, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its watch tells neither, and a later list shows nothing that is new."""
    monkeypatch.setattr(follower, "LOOK_SECONDS", 0.05)
    async with job_manager(deaf, clock) as first, job_manager(kv, clock) as second:
        made = await first.create("sam", Role.ADMIN, "*", expires_millis=0)
        await second.catch_up()
        await second.revoke("sam")
        await second.forget("sam")
        await until(lambda: first.find(made.token) is None)


async def test_a_revoke_that_is_repeated_elsewhere_holds_there(
    kv: MemoryKeyValueStore, deaf: FaultyKeyValueStore, clock: SteppedClock
) -> None:
    """As when the one that has revoked it died before its answer, and the client asks the next one."""
    async with job_manager(kv, clock) as leader:
        made = await leader.create("sam", Role.SUBMITTER, "team-a", expires_millis=0)
        before = dict(leader._stored)
        async with job_manager(deaf, clock) as next_leader:
            await leader.revoke("sam")
            assert next_leader.find(made.token) == SAM
            await next_leader.revoke("sam")
            assert next_leader.find(made.token) is None
            next_leader._take(FollowedPrincipals(before))
            assert next_leader.find(made.token) is None


async def test_late_news_of_a_name_drop_no_new_principal_of_it(kv: MemoryKeyValueStore, clock: SteppedClock) -> None:
    """The store tells the mark of the one before, and then its deletion, after a new one was made here."""
    async with job_manager(kv, clock) as leader:
        await leader.create("sam", Role.VIEWER, "*", expires_millis=0)
        await leader.revoke("sam")
        mark = dict(leader._stored)
        await leader.forget("sam")
        made = await leader.create("sam", Role.SUBMITTER, "team-a", expires_millis=0)
        for late in (mark, {}):
            leader._take(FollowedPrincipals(late))
            assert leader.find(made.token) == SAM


async def test_what_is_stored_is_no_token(kv: MemoryKeyValueStore, clock: SteppedClock) -> None:
    async with job_manager(kv, clock) as leader:
        made = await leader.create("sam", Role.SUBMITTER, "team-a", expires_millis=0)
    stored = (await kv.range(KEYS.principals, is_prefix=True, timeout=5)).kvs
    assert [one.key for one in stored] == [KEYS.principal("sam")]
    assert made.token.encode() not in stored[0].value
    assert made.token.removeprefix("flt_").encode() not in stored[0].value


async def test_a_token_ends(kv: MemoryKeyValueStore, clock: SteppedClock) -> None:
    async with job_manager(kv, clock) as leader:
        now = clock.epoch_millis()
        with pytest.raises(InvalidInputError, match="later time"):
            await leader.create("sam", Role.VIEWER, "*", expires_millis=now - 1)
        made = await leader.create("sam", Role.VIEWER, "*", expires_millis=now + 60_000)
        assert leader.find(made.token) is not None
        leader.check_not_ended(made.token)
        clock.ahead = 60_001
        assert leader.find(made.token) is None
        with pytest.raises(UnauthenticatedError, match="the token of principal sam has ended"):
            leader.check_not_ended(made.token)
        leader.check_not_ended("somebody's")


async def test_two_tokens_are_taken_at_a_time(kv: MemoryKeyValueStore, clock: SteppedClock) -> None:
    async with job_manager(kv, clock) as leader:
        first = (await leader.create("sam", Role.SUBMITTER, "team-a", expires_millis=0)).token
        second = (await leader.rotate("sam", expires_millis=0)).token
        assert leader.find(first) == leader.find(second) == SAM
        third = (await leader.rotate("sam", expires_millis=0)).token
        assert [leader.find(one) for one in (first, second, third)] == [None, SAM, SAM]


async def test_what_an_admin_is_refused(kv: MemoryKeyValueStore, clock: SteppedClock) -> None:
    async with job_manager(kv, clock) as leader:
        await leader.create("sam", Role.SUBMITTER, "team-a", expires_millis=0)
        with pytest.raises(ConflictError, match="rotate gives it"):
            await leader.create("sam", Role.OPERATOR, "team-b", expires_millis=0)
        with pytest.raises(NotFoundError):
            await leader.rotate("sue", expires_millis=0)
        with pytest.raises(InvalidInputError, match="all namespaces"):
            await leader.create("ann", Role.ADMIN, "team-a", expires_millis=0)
        for name in ("admin", "Admin", "admin.", "", "a b", "../x", "x" * 128, "\u2028"):
            with pytest.raises(InvalidInputError, match="name of a principal"):
                await leader.create(name, Role.VIEWER, "*", expires_millis=0)
        await leader.revoke("sam")
        with pytest.raises(ConflictError, match="create it again"):
            await leader.rotate("sam", expires_millis=0)
        again = await leader.create("sam", Role.VIEWER, "team-b", expires_millis=0)
        assert leader.find(again.token) == Principal("sam", Role.VIEWER, "team-b")


async def test_of_two_admins_at_once_one_is_told(kv: MemoryKeyValueStore, clock: SteppedClock) -> None:
    store = PrincipalStore(kv, KEYS, SystemEntropy(), timeout=5)
    async with job_manager(kv, clock) as leader:
        made = await leader.create("sam", Role.SUBMITTER, "team-a", expires_millis=0)
        await leader.rotate("sam", expires_millis=0)
        with pytest.raises(ConflictError, match="meanwhile"):
            await store.put(made.record, previous_revision=0)


async def test_one_whose_record_cannot_be_read_does_not_sign_in(kv: MemoryKeyValueStore, clock: SteppedClock) -> None:
    async with job_manager(kv, clock) as leader:
        sam = await leader.create("sam", Role.SUBMITTER, "team-a", expires_millis=0)
        sue = await leader.create("sue", Role.SUBMITTER, "team-a", expires_millis=0)
        await kv.txn(Txn((), (Put(KEYS.principal("sam"), refused("its seal is wrong")),)), timeout=5)
        await until(lambda: leader.find(sam.token) is None)
        assert leader.has("sam"), "the key names it: no JWT speaks for it"
        assert leader.problems() == {"sam": "its seal is wrong"}
        await kv.txn(Txn((), (Delete(KEYS.principal("sue")),)), timeout=5)
        await until(lambda: leader.find(sue.token) is None)


async def test_a_name_whose_record_cannot_be_read_stays_shut_out(kv: MemoryKeyValueStore, clock: SteppedClock) -> None:
    """Also by a JobManager that has never read it otherwise, and for who copies the record of another one."""
    async with job_manager(kv, clock) as leader:
        await leader.create("sam", Role.SUBMITTER, "team-a", expires_millis=0)
        await leader.revoke("sam")
        await leader.create("sue", Role.SUBMITTER, "team-a", expires_millis=0)
        (of_sue,) = (await kv.range(KEYS.principal("sue"), is_prefix=False, timeout=5)).kvs
    await kv.txn(Txn((), (Put(KEYS.principal("sam"), b"junk"),)), timeout=5)
    await kv.txn(Txn((), (Put(KEYS.principal("tom"), of_sue.value),)), timeout=5)
    for name in ("", "..", "a\x1b[31mb", "admin"):
        await kv.txn(Txn((), (Put(KEYS.principal(name), b"junk"),)), timeout=5)
    async with job_manager(kv, clock) as next_leader:
        assert [one.name for one in next_leader.records()] == ["sam", "sue", "tom"]
        assert next_leader.problems() == {
            "sam": "4 bytes that are no JSON",
            "tom": "it is that of another principal",
        }
        assert next_leader.has("sam")


async def test_revoke_replaces_what_cannot_be_read(kv: MemoryKeyValueStore, clock: SteppedClock) -> None:
    async with job_manager(kv, clock) as leader:
        await kv.txn(Txn((), (Put(KEYS.principal("sam"), b"junk"),)), timeout=5)
        for attempt in (
            leader.create("sam", Role.SUBMITTER, "team-a", expires_millis=0),
            leader.admit("sam", Role.SUBMITTER, "team-a", certificate="sam"),
            leader.rotate("sam", expires_millis=0),
        ):
            with pytest.raises(ConflictError, match="`flinklike tokens revoke sam` replaces it"):
                await attempt
        await leader.revoke("sam")
        assert (leader.problems(), [one.is_revoked for one in leader.records()]) == ({}, [True])
        made = await leader.create("sam", Role.SUBMITTER, "team-a", expires_millis=0)
        assert leader.find(made.token) == SAM


async def test_junk_is_told_once_however_often_it_is_written(
    kv: MemoryKeyValueStore, clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with job_manager(kv, clock) as leader:
        for size in range(1, 20):
            await kv.txn(Txn((), (Put(KEYS.principal("sam"), b"x" * size),)), timeout=5)
            await until(lambda seen=f"{size} bytes": leader.problems().get("sam", "").startswith(seen))  # type: ignore[misc]
    assert [one for one in caplog.messages if "principal 'sam'" in one] == [
        "no client can sign in as principal 'sam': 1 bytes that are no JSON"
    ]


async def test_an_older_state_of_the_store_brings_nobody_back(kv: MemoryKeyValueStore, clock: SteppedClock) -> None:
    async with job_manager(kv, clock) as leader:
        made = await leader.create("sam", Role.SUBMITTER, "team-a", expires_millis=0)
        before = dict(leader._stored)
        await leader.revoke("sam")
        leader._take(FollowedPrincipals(before))
        assert leader.find(made.token) is None
        other = await leader.create("sue", Role.VIEWER, "*", expires_millis=0)
        leader._take(FollowedPrincipals(before))
        assert leader.find(other.token) is not None


async def test_who_is_forgotten_makes_room_and_does_not_come_back(
    kv: MemoryKeyValueStore, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.rest.access.principals.PRINCIPALS_MAX", 1)
    async with job_manager(kv, clock) as leader, job_manager(kv, clock) as stand_by:
        made = await leader.create("sam", Role.SUBMITTER, "team-a", expires_millis=0)
        before = dict(leader._stored)
        with pytest.raises(ConflictError, match="is not revoked: revoke it first"):
            await leader.forget("sam")
        await leader.revoke("sam")
        with pytest.raises(ConflictError, match="`flinklike tokens forget <name>` deletes one"):
            await leader.create("sue", Role.VIEWER, "*", expires_millis=0)
        mark = leader._stored["sam"]
        await leader.forget("sam")
        assert not leader.has("sam")
        leader._hold("sam", mark)  # of who has asked at the same time
        leader._take(FollowedPrincipals(before))
        assert leader.find(made.token) is None, "what the store has told before"
        await until(lambda: not stand_by.has("sam"))
        with pytest.raises(NotFoundError):
            await leader.forget("sam")
        await leader.create("sue", Role.VIEWER, "*", expires_millis=0)
        await leader.revoke("sue")
        await leader.forget("sue")
        again = await leader.create("sam", Role.SUBMITTER, "team-a", expires_millis=0)
        await until(lambda: stand_by.find(again.token) == SAM)
        assert leader.find(again.token) == SAM


async def test_the_clusters_token_is_the_admins(kv: MemoryKeyValueStore, clock: SteppedClock) -> None:
    token = new_cluster_token()
    async with job_manager(kv, clock) as leader:
        sam = await leader.create("sam", Role.SUBMITTER, "team-a", expires_millis=0)
        sign_in = TokenSignIn(token, leader)

        def by(text: str) -> Principal | None:
            return sign_in({"path": "/jobs", "headers": [(b"authorization", f"Bearer {text}".encode())]})

        assert (by(token.reveal()), by(sam.token), by("wrong"), by("")) == (ADMIN, SAM, None, None)


async def test_a_certificate_signs_in_until_it_is_revoked(kv: MemoryKeyValueStore, clock: SteppedClock) -> None:
    by_certificate = Principal("sam", Role.SUBMITTER, "team-a", via="certificate")
    async with job_manager(kv, clock) as leader, job_manager(kv, clock) as stand_by:
        await leader.admit("sam", Role.SUBMITTER, "team-a", certificate="Sam of sales")
        assert leader.find_by_certificate("Sam of sales") == by_certificate
        await until(lambda: stand_by.find_by_certificate("Sam of sales") == by_certificate)
        assert leader.find_by_certificate("sam") is None, "its own name is not that of its certificate"
        with pytest.raises(ConflictError, match="sam signs in by the certificate 'Sam of sales'"):
            await leader.admit("sue", Role.ADMIN, "*", certificate="Sam of sales")
        with pytest.raises(ConflictError, match="principal sam exists"):
            await leader.create("sam", Role.VIEWER, "*", expires_millis=0)
        with pytest.raises(ConflictError, match="sam signs in by the certificate 'Sam of sales' and has no token"):
            await leader.rotate("sam", expires_millis=0)
        await leader.revoke("sam")
        assert leader.find_by_certificate("Sam of sales") is None
        await until(lambda: stand_by.find_by_certificate("Sam of sales") is None)
        await leader.admit("sue", Role.VIEWER, "*", certificate="Sam of sales")
        assert leader.find_by_certificate("Sam of sales") == Principal("sue", Role.VIEWER, "*", via="certificate")


async def test_a_certificate_of_two_is_nobodys(kv: MemoryKeyValueStore, clock: SteppedClock) -> None:
    """Two admins at once, by two leaders that are none any more when the other one writes."""
    async with job_manager(kv, clock) as leader:
        sam = await leader.admit("sam", Role.VIEWER, "team-a", certificate="alice")
        store = PrincipalStore(kv, KEYS, SystemEntropy(), timeout=5)
        await store.put(replace(sam, name="bob", role="admin", namespace="*"), previous_revision=0)
        await until(lambda: leader.find_by_certificate("alice") is None)
        await leader.revoke("bob")
        assert leader.find_by_certificate("alice") == Principal("sam", Role.VIEWER, "team-a", via="certificate")


async def test_names_that_no_certificate_has_are_refused(kv: MemoryKeyValueStore, clock: SteppedClock) -> None:
    async with job_manager(kv, clock) as leader:
        for name in ("", " a", "a\n", "\x1b[2J", "\u202e", "x" * 257):
            with pytest.raises(InvalidInputError, match="name in a certificate"):
                await leader.admit("sam", Role.VIEWER, "*", certificate=name)
        assert leader.records() == []
        assert leader.find_by_certificate("") is None
