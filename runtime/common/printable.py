"""Text of others for people's terminals and logs: nothing in it may steer them, or show what it does not say (R41).

Jobs name and say what they like. Control characters (C0, DEL, C1) move the cursor, change titles and answer for the
user; controls of writing direction show a text in another order than it has.
"""

from __future__ import annotations

import re

_STEERING = (
    r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # C0 without tab and ends of lines, DEL, C1
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks, embeddings, overrides and isolates of direction
    r"\u2028\u2029"  # ends of lines that only some programs know
)
_STEERS = re.compile(rf"\r(?!\n)|[{_STEERING}]")
_STEERS_OUTPUT = re.compile(rf"(\x1b\[[0-9;:]{{0,64}}m)|\r(?!\n)|[{_STEERING}]")


def printable(text: str) -> str:
    """The same with each of these characters as an escape: `\\x1b`, `\\u202e`."""
    return text if text.isprintable() else _STEERS.sub(lambda found: _escaped(found[0]), text)


def printable_output(text: str) -> str:
    """What a program has written, for a terminal: colours stay, the rest as in `printable`."""
    return text if text.isprintable() else _STEERS_OUTPUT.sub(lambda found: found[1] or _escaped(found[0]), text)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
