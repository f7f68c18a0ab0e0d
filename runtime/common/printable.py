"""Text from jobs and clients, made safe for terminals and logs (R41).

Names and output of jobs may hold any character. Control characters (C0, DEL, C1) move the cursor, change titles and
type answers for the user; controls of writing direction show a text in another order than it has.
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
    """The text with each control character as an escape: `\\x1b`, `\\u202e`."""
    return text if text.isprintable() else _STEERS.sub(lambda found: _escaped(found[0]), text)


def printable_output(text: str) -> str:
    """The output of a program, for a terminal: colours stay, all else is as in `printable`."""
    return text if text.isprintable() else _STEERS_OUTPUT.sub(lambda found: found[1] or _escaped(found[0]), text)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
