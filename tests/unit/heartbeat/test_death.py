"""What an answer at a guard's address proves (R13)."""

from __future__ import annotations

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.common.ids import Incarnation
from runtime.heartbeat.core.death import (
    Answered,
    ConnectionRefused,
    Dialled,
    GuardIdentity,
    NoAnswer,
    Verdict,
    identity_of,
    judge,
)
from runtime.heartbeat.proof_of_death import GuardDialler, dial

ME, OTHER = "a" * 32, "b" * 32
EXPECTED = GuardIdentity(Incarnation(ME), "boot-1")
NO_ANSWERS: list[Dialled] = [
    NoAnswer("away"),
    Answered(""),
    Answered(f"{ME} boot-1"),
    Answered(f"{ME}\n"),
    Answered(f"{ME} boot-1 more\n"),
    Answered("HTTP/1.1 400 Bad Request\r\n"),
    Answered("220 mail\n"),
]


@pytest.mark.parametrize("trusts_refusal", [True, False])
@pytest.mark.parametrize(
    ("dialled", "verdict"),
    [
        (Answered(f"{ME} boot-1\n"), Verdict.ALIVE),
        (Answered(f"{OTHER} boot-1\n"), Verdict.DEAD),
        (Answered(f"{ME} boot-2\n"), Verdict.DEAD),
        *((dialled, Verdict.UNKNOWN) for dialled in NO_ANSWERS),
    ],
)
def test_an_answer_is_what_it_says(dialled: Dialled, verdict: Verdict, *, trusts_refusal: bool) -> None:
    assert judge(dialled, EXPECTED, trusts_refusal=trusts_refusal) is verdict


def test_a_refusal_is_a_proof_only_where_it_is_trusted() -> None:
    assert judge(ConnectionRefused(), EXPECTED, trusts_refusal=True) is Verdict.DEAD
    assert judge(ConnectionRefused(), EXPECTED, trusts_refusal=False) is Verdict.UNKNOWN


@given(st.text(max_size=80))
def test_only_a_whole_line_of_a_guard_proves_anything(text: str) -> None:
    is_proof = judge(Answered(text), EXPECTED, trusts_refusal=True) is not Verdict.UNKNOWN
    assert is_proof == (identity_of(text) is not None)


@pytest.mark.asyncio
async def test_a_listener_that_says_nothing_proves_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert isinstance(await dial(address, timeout=0.05), NoAnswer)
        assert not await GuardDialler(trusts_refusal=True, timeout=0.05).prove_death(address, Incarnation(ME), "boot-1")


@pytest.mark.asyncio
async def test_a_listener_that_closes_at_once_proves_nothing() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        assert isinstance(await dial(f"{host}:{port}", timeout=5.0), NoAnswer)


@pytest.mark.asyncio
async def test_a_name_that_does_not_resolve_proves_nothing() -> None:
    assert isinstance(await dial("no-such-host.invalid:1", timeout=5.0), NoAnswer)
