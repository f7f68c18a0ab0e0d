"""What an answer, or none, at a guard's liveness address proves about its TaskManager (R13). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from runtime.common.ids import Incarnation, is_hex_id

GRACE = 0.5
"""Seconds after a finding: should the guard itself have been killed, parent-death signals end the rest meanwhile."""


PROCESS_GRACE = 0.2
"""Seconds between the two findings about a process without a guard: one that is stopping refuses and still lives."""


@dataclass(frozen=True, slots=True)
class GuardIdentity:
    """Which life of which TaskManager, on which boot of its host."""

    incarnation: Incarnation
    boot_id: str


@dataclass(frozen=True, slots=True)
class Answered:
    """Somebody at the address said this."""

    text: str


@dataclass(frozen=True, slots=True)
class ConnectionRefused:
    """The host lives, and nobody listens at the address."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Nothing came back in time, or what came back says nothing."""

    reason: str


Dialled = Answered | ConnectionRefused | NoAnswer


class Verdict(Enum):
    """ALIVE: the guard of that very TaskManager answered. DEAD: proven. UNKNOWN: neither."""

    ALIVE = "ALIVE"
    DEAD = "DEAD"
    UNKNOWN = "UNKNOWN"


def identity_of(text: str) -> GuardIdentity | None:
    """What a guard says: "<incarnation> <boot id>\\n". None for anything else: it did not come from a guard."""
    words = text.split()
    if not text.endswith("\n") or len(words) != 2 or not is_hex_id(words[0]):
        return None
    return GuardIdentity(Incarnation(words[0]), words[1])


def judge_process(dialled: Dialled, expected: Incarnation, *, trusts_refusal: bool) -> Verdict:
    """The same of a process whose address answers with its incarnation. Never a proof that what it did is over."""
    match dialled:
        case Answered(text):
            return Verdict.ALIVE if text == expected else Verdict.DEAD
        case ConnectionRefused():
            return Verdict.DEAD if trusts_refusal else Verdict.UNKNOWN
        case NoAnswer():
            return Verdict.UNKNOWN


def judge(dialled: Dialled, expected: GuardIdentity, *, trusts_refusal: bool) -> Verdict:
    """What it proves, at an address that was once dialled successfully.

    Without `trusts_refusal` (a firewall refuses for hosts that live) only another guard's answer is a proof.
    """
    match dialled:
        case Answered(text):
            found = identity_of(text)
            if found is None:
                return Verdict.UNKNOWN
            return Verdict.ALIVE if found == expected else Verdict.DEAD
        case ConnectionRefused():
            return Verdict.DEAD if trusts_refusal else Verdict.UNKNOWN
        case NoAnswer():
            return Verdict.UNKNOWN
