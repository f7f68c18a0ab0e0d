"""What a dial of a guard, or of a JobMaster process, proves (R13)."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.common.errors import UnauthenticatedError, UnavailableError
from runtime.common.ids import Incarnation
from runtime.heartbeat.core.death import (
    REAPED,
    Answered,
    ConnectionRefused,
    Dialled,
    GuardIdentity,
    NoAnswer,
    Verdict,
    judge,
    judge_process,
)
from runtime.heartbeat.proof_of_death import GuardDialler, ProcessDialler, dial
from runtime.rpc.service import NobodyListensError
from runtime.taskexecutor.guard import records, statement
from tests.kit.control_plane.virtual_time import run_virtual

ME, OTHER = "a" * 32, "b" * 32
EXPECTED = GuardIdentity(Incarnation(ME), "boot-1")
NO_ANSWERS: list[Dialled] = [
    NoAnswer("away"),
    Answered(""),
    Answered(f"{ME} boot-1"),
    Answered(f"{ME}\n"),
    Answered(f"{ME} boot-1 more\n"),
    Answered(f"{ME} boot-1 reaped"),
    Answered(f"{ME} boot-1 reaped reaped\n"),
    Answered("HTTP/1.1 400 Bad Request\r\n"),
    Answered("220 mail\n"),
]


@pytest.mark.parametrize(
    ("dialled", "verdict"),
    [
        (Answered(f"{ME} boot-1\n"), Verdict.ALIVE),
        (Answered(f"{ME} boot-1 reaped\n"), Verdict.DEAD),
        *(
            (Answered(f"{text}{reaped}\n"), Verdict.UNKNOWN)
            for text in (f"{OTHER} boot-1", f"{ME} boot-2")
            for reaped in ("", " reaped")
        ),
        *((dialled, Verdict.UNKNOWN) for dialled in NO_ANSWERS),
    ],
)
def test_an_answer_is_what_it_says(dialled: Dialled, verdict: Verdict) -> None:
    assert judge(dialled, EXPECTED) is verdict


def test_what_guards_say_and_note_is_what_is_believed() -> None:
    assert REAPED == statement.REAPED
    assert f"{REAPED}\n".encode() == records._REAPED


def test_a_refusal_proves_nothing() -> None:  # R30
    assert judge(ConnectionRefused(), EXPECTED) is Verdict.UNKNOWN


@pytest.mark.parametrize("trusts_refusal", [True, False])
@pytest.mark.parametrize(
    ("dialled", "verdict"),
    [
        (Answered(ME), Verdict.ALIVE),
        (Answered(OTHER), Verdict.DEAD),
        (NoAnswer("frozen"), Verdict.UNKNOWN),
    ],
)
def test_a_process_is_who_it_says(dialled: Dialled, verdict: Verdict, *, trusts_refusal: bool) -> None:
    assert judge_process(dialled, EXPECTED.incarnation, trusts_refusal=trusts_refusal) is verdict


@pytest.mark.parametrize(("trusts_refusal", "verdict"), [(True, Verdict.DEAD), (False, Verdict.UNKNOWN)])
def test_a_process_that_is_refused_is_dead_where_that_is_trusted(verdict: Verdict, *, trusts_refusal: bool) -> None:
    assert judge_process(ConnectionRefused(), EXPECTED.incarnation, trusts_refusal=trusts_refusal) is verdict


class Peer:
    """Gives its answers in turn, and the last one again and again."""

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)

    async def identify(self, address: str, *, timeout: float) -> Incarnation:
        assert (address, timeout) == ("host:1", 1.0)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return Incarnation(answer)


REFUSED, SILENT, FOREIGN = NobodyListensError("no"), UnavailableError("silent"), UnauthenticatedError("who are you")


@pytest.mark.parametrize(
    ("answers", "is_dead"),
    [
        ((REFUSED,), True),
        ((OTHER,), True),
        ((REFUSED, OTHER), True),
        ((ME,), False),
        ((SILENT,), False),
        ((FOREIGN,), False),
        ((REFUSED, ME), False),
        ((REFUSED, SILENT), False),
        ((SILENT, REFUSED), False),
    ],
)
def test_a_process_is_found_dead_twice(answers: tuple[str | Exception, ...], *, is_dead: bool) -> None:
    dialler = ProcessDialler(Peer(*answers).identify, trusts_refusal=True, timeout=1.0)
    assert run_virtual(dialler.prove_death("host:1", Incarnation(ME))) is is_dead


@given(st.text(max_size=80))
def test_only_a_whole_line_of_a_guard_proves_anything(text: str) -> None:
    assert judge(Answered(text), EXPECTED) is Verdict.UNKNOWN
    assert judge(Answered(f"{ME} boot-1{text}\n"), EXPECTED) is not Verdict.DEAD or text.split() == ["reaped"]


@pytest.mark.asyncio
async def test_a_listener_that_says_nothing_proves_nothing() -> None:
    accepted: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        address = f"{host}:{port}"
        while len(accepted) < 2:
            assert isinstance(await dial(address, 0.05), NoAnswer)
        while len(accepted) < 4:
            assert not await GuardDialler(timeout=0.05).prove_death(address, Incarnation(ME), "boot-1")
        for writer in accepted:
            writer.close()


@pytest.mark.asyncio
async def test_a_listener_that_closes_at_once_proves_nothing() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        assert isinstance(await dial(f"{host}:{port}", 5.0), NoAnswer)


@pytest.mark.asyncio
@pytest.mark.parametrize("address", ["", "host", "host:port", "host:-1", "host:99999"])
async def test_an_address_that_is_none_proves_nothing(address: str) -> None:
    assert isinstance(await dial(address, 5.0), NoAnswer)


@pytest.mark.asyncio
async def test_a_name_that_does_not_resolve_proves_nothing() -> None:
    assert isinstance(await dial("no-such-host.invalid:1", 5.0), NoAnswer)
