"""Which proof about a TaskManager an answer, or none, at its guard's liveness address is (R13). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from runtime.common.ids import Incarnation, is_hex_id

PROCESS_GRACE = 0.2
"""Seconds between the two findings about a process without a guard: one that is stopping refuses and still lives."""


@dataclass(frozen=True, slots=True)
class GuardIdentity:
    """One life of a TaskManager, on one boot of its host."""

    incarnation: Incarnation
    boot_id: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A listener at the address has sent `text`."""

    text: str


@dataclass(frozen=True, slots=True)
class ConnectionRefused:
    """The host lives, and no process listens at the address."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """No answer came in time, or the answer is no proof."""

    reason: str


Dialled = Answered | ConnectionRefused | NoAnswer


class Verdict(Enum):
    """ALIVE: the guard of that very TaskManager answered. DEAD: proven. UNKNOWN: neither."""

    ALIVE = "ALIVE"
    DEAD = "DEAD"
    UNKNOWN = "UNKNOWN"


REAPED = "reaped"
"""What a guard says behind its identity once everything is killed and reaped."""


def identity_of(text: str) -> tuple[GuardIdentity, bool] | None:
    """The identity in a guard's statement "<incarnation> <boot id>[ reaped]\\n", and True when everything is reaped.

    None for a text that no guard states.
    """
    words = text.split()
    is_reaped = words[2:] == [REAPED]
    if not text.endswith("\n") or len(words) != 2 + is_reaped or not is_hex_id(words[0]):
        return None
    return GuardIdentity(Incarnation(words[0]), words[1]), is_reaped


def judge_process(dialled: Dialled, expected: Incarnation, *, trusts_refusal: bool) -> Verdict:
    """The verdict about a process that answers with its incarnation; it says nothing about processes that it has
    started.
    """
    match dialled:
        case Answered(text):
            return Verdict.ALIVE if text == expected else Verdict.DEAD
        case ConnectionRefused():
            return Verdict.DEAD if trusts_refusal else Verdict.UNKNOWN
        case NoAnswer():
            return Verdict.UNKNOWN


def judge(dialled: Dialled, expected: GuardIdentity) -> Verdict:
    """The verdict about that TaskManager (R30). Only a guard that has reaped everything states that; a refusal may come
    from a killed guard, and another guard at the address says nothing about this TaskManager.
    """
    if not isinstance(dialled, Answered) or (found := identity_of(dialled.text)) is None or found[0] != expected:
        return Verdict.UNKNOWN
    return Verdict.DEAD if found[1] else Verdict.ALIVE
