"""Inputs out of inputs: bytes that are changed anywhere, and JSON whose values are. One seed gives the same ones."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

LENGTHS = (0, 1, 2, 127, 128, 255, 256, 4095, 4096, 65535, 65536)
NUMBERS = (0, -1, 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**40, 1e308, -0.0, 0.5, float("nan"))
TEXTS = ("", " ", "\x00", "\ud800", "\u202e", "\x1b[2J", "../../x", "/", "-oProxyCommand=x", "a" * 300, "٣", "9" * 5000)
BYTES = (b"\x00", b"\xff", b"\xff" * 10, b"\x80" * 10, b"\x7f\xff\xff\xff", b"\n", b"{", b"[" * 2000, b'"', b"9" * 5000)
SIZE_MAX = 256 * 1024


class Mutator:
    """`tokens` are pieces that the format knows. What the first `prefix` bytes say is left alone most of the time."""

    def __init__(self, seed: int, tokens: Sequence[bytes] = (), *, prefix: int = 0) -> None:
        self._random = random.Random(seed)
        self._tokens = (*BYTES, *tokens)
        self._prefix = prefix

    def of(self, corpus: Sequence[bytes]) -> bytes:
        """One more input."""
        draw = self._random
        data = draw.choice(corpus)
        head, body = data[: self._prefix], data[self._prefix :]
        if self._prefix and draw.random() < 0.1:
            head = draw.choice(corpus)[: self._prefix]
        changed = self._json(body) if draw.random() < 0.6 else None
        if changed is None:
            changed = body
            for _ in range(draw.choice((1, 1, 1, 2, 4, 8))):
                changed = self._bytes(changed, draw.choice(corpus)[self._prefix :])
        return (head + changed)[:SIZE_MAX]

    def _bytes(self, data: bytes, other: bytes) -> bytes:
        draw = self._random
        at = draw.randrange(len(data) + 1)
        to = min(len(data), at + draw.choice(LENGTHS))
        ways: list[Callable[[], bytes]] = [
            lambda: data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :],
            lambda: (
                data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :] if at < len(data) else data
            ),
            lambda: data[:at] + data[to:],
            lambda: data[:at],
            lambda: data[:at] + data[at:to] * draw.choice((2, 3, 50)) + data[to:],
            lambda: data[:at] + draw.choice(self._tokens) + data[at:],
            lambda: data[:at] + draw.choice(self._tokens) + data[to:],
            lambda: data[:at] + other[draw.randrange(len(other) + 1) :],
            lambda: data[:at] + draw.randbytes(draw.choice((1, 2, 4, 8))) + data[at:],
        ]
        return draw.choice(ways)()

    def _json(self, data: bytes) -> bytes | None:
        """None: it is none, or too large to be worth it."""
        if len(data) > SIZE_MAX // 4 or data.lstrip()[:1] not in {b"{", b"["}:
            return None
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            return None
        for _ in range(self._random.choice((1, 1, 2, 3))):
            document = self._changed(document)
        try:
            return json.dumps(document).encode()
        except (ValueError, RecursionError):
            return None

    def _changed(self, document: Any) -> Any:
        """With one value of it replaced, taken away, or told twice."""
        draw = self._random
        places: list[tuple[Any, Any]] = []
        _collect(document, places, 2000)
        if not places or draw.random() < 0.02:
            return self._value()
        parent, key = draw.choice(places)
        way = draw.randrange(6)
        if way == 0 and isinstance(parent, dict):
            del parent[key]
        elif way == 1 and isinstance(parent, dict):
            parent[draw.choice((*TEXTS, *map(str, parent)))] = parent[key]
        elif way == 2 and isinstance(parent, list):
            parent.extend([parent[key]] * draw.choice((1, 2, 200)))
        elif way == 3:
            other_parent, other_key = draw.choice(places)
            parent[key] = json.loads(json.dumps(other_parent[other_key]))
        else:
            parent[key] = self._value()
        return document

    def _value(self) -> Any:
        draw = self._random
        match draw.randrange(8):
            case 0 | 1:
                return draw.choice(NUMBERS)
            case 2 | 3:
                return draw.choice(TEXTS)
            case 4:
                return draw.choice((None, True, False, [], {}, [None], {"": None}))
            case 5:
                return [draw.choice(NUMBERS)] * draw.choice((3, 300))
            case 6:
                deep: Any = draw.choice(("x", 1))
                for _ in range(draw.choice((5, 70, 300))):
                    deep = [deep] if draw.random() < 0.5 else {"x": deep}
                return deep
            case _:
                return {draw.choice(TEXTS): draw.choice(TEXTS)}


def _collect(node: Any, places: list[tuple[Any, Any]], limit: int) -> None:
    pending = [node]
    while pending and len(places) < limit:
        one = pending.pop()
        keys: list[Any] = list(one) if isinstance(one, dict) else list(range(len(one))) if isinstance(one, list) else []
        for key in keys:
            places.append((one, key))
            pending.append(one[key])
