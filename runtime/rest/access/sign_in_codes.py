"""Codes that sign in a browser once, within a minute: a program that has a token asks for one and opens the page by it.

Each JobManager knows only those that it has given itself, in memory: a code is used once, and is lost with the process.
"""

from __future__ import annotations

import hashlib
import secrets

from runtime.common.clock import Clock

LIFE_SECONDS = 60
_CODES_MAX = 100
_CODES_OF_ONE_MAX = 5


class SignInCodes:
    """Gives and takes codes. Above a limit the oldest one ends, of one token before those of others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tokens: dict[bytes, tuple[float, str]] = {}

    def __repr__(self) -> str:
        return f"SignInCodes({len(self._tokens)})"

    def give(self, token: str) -> str:
        """A code for whoever has shown that token."""
        self._expire()
        own = [digest for digest, (_, one) in self._tokens.items() if one == token]
        for digest in own[: len(own) - _CODES_OF_ONE_MAX + 1] if len(own) >= _CODES_OF_ONE_MAX else []:
            del self._tokens[digest]
        while len(self._tokens) >= _CODES_MAX:
            del self._tokens[next(iter(self._tokens))]
        code = secrets.token_urlsafe(32)
        self._tokens[_digest(code)] = (self._clock.monotonic() + LIFE_SECONDS, token)
        return code

    def take(self, code: str) -> str:
        """The token, once; "" for a code that is not known, was taken, or is too old."""
        self._expire()
        return self._tokens.pop(_digest(code), (0.0, ""))[1]

    def _expire(self) -> None:
        now = self._clock.monotonic()
        self._tokens = {digest: one for digest, one in self._tokens.items() if one[0] > now}


def _digest(code: str) -> bytes:
    """What is looked up tells nothing about the code by the time that it takes."""
    return hashlib.sha256(code.encode()).digest()
