"""Exact changes of a source text: what is not changed stays as it is, with its format and its comments."""

from __future__ import annotations

import ast
import bisect
import io
import re
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


@dataclass(frozen=True, order=True, slots=True)
class Edit:
    """`text` in the place of the characters from `start` to `end`."""

    start: int
    end: int
    text: str = ""


class OverlappingEditsError(Exception):
    """Two changes of one text contradict each other."""


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """The text with all edits, in whatever order they are given. Deletions may overlap each other.

    Raises OverlappingEditsError where another text would stand for characters that a second edit changes too.
    """
    parts: list[str] = []
    position = 0
    last = Edit(0, 0)
    for edit in sorted(set(edits)):
        if edit.start < position and (edit.text or last.text):
            message = f"two changes for characters {edit.start} to {position}"
            raise OverlappingEditsError(message)
        parts += [text[position : edit.start], edit.text]
        position = max(position, edit.end)
        last = edit
    return "".join([*parts, text[position:]])


@dataclass(frozen=True, slots=True)
class Segment:
    """One element between brackets: its characters, and the comma behind it (-1: none)."""

    start: int
    end: int
    comma: int

    @property
    def stop(self) -> int:
        """The end, with the comma."""
        return self.end if self.comma < 0 else self.comma + 1


class Source:
    """A text with the positions of its tokens."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = [0]
        for match in _LINE.finditer(text):
            self._lines.append(match.end())

    def offset(self, line: int, column_bytes: int) -> int:
        """The character at a position as `ast` gives it."""
        start = self._lines[line - 1]
        content = self.text[start : self._lines[line]]
        if content.isascii():
            return start + column_bytes
        return start + len(content.encode()[:column_bytes].decode())

    def span(self, node: ast.expr | ast.stmt | ast.keyword | ast.alias) -> tuple[int, int]:
        """The characters of a node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    @cached_property
    def _tokens(self) -> list[tuple[int, int, int, str]]:
        """(start, end, type, text) of each token that is not only a line's end."""
        lines = [self.text[start:end] for start, end in zip(self._lines, self._lines[1:], strict=False)]
        # `tokenize` reads only \n as a line's end where ast reads \r too; columns stay the same.
        plain = [re.sub(r"\r\n?\Z", "\n", line) for line in lines]
        found = []
        for token in tokenize.generate_tokens(io.StringIO("".join(plain), newline="\n").readline):
            if token.type in {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}:
                continue
            start = self._lines[token.start[0] - 1] + token.start[1]
            end = self._lines[token.end[0] - 1] + token.end[1]
            found.append((start, end, token.type, token.string))
        return found

    def segments(self, opening: int) -> list[Segment]:
        """The elements of the bracket that opens at a character, without comments around them."""
        tokens = self._tokens
        index = bisect.bisect_left(tokens, (opening,))
        assert tokens[index][3] in _OPENING
        found: list[Segment] = []
        depth, start, end, lambdas = 0, -1, -1, 0
        for first, last, kind, text in tokens[index:]:
            if kind == tokenize.COMMENT:
                continue
            depth -= kind == tokenize.OP and text in _CLOSING
            if depth == 0 and text in _CLOSING:
                return [*found, Segment(start, end, -1)] if start >= 0 else found
            if depth == 1 and not lambdas and text == ",":
                found.append(Segment(start, end, first))
                start = end = -1
            elif depth > 0:
                start, end = (first if start < 0 else start), last
                lambdas += _lambda_step(depth, text, lambdas)
            depth += kind == tokenize.OP and text in _OPENING
        return found

    def bracket_after(self, position: int) -> int:
        """The first opening bracket at or behind a character."""
        index = bisect.bisect_left(self._tokens, (position,))
        return next(start for start, _, kind, text in self._tokens[index:] if kind == tokenize.OP and text in _OPENING)

    def line_start(self, position: int) -> int:
        """Where the line of a character begins."""
        return self._lines[bisect.bisect_right(self._lines, position) - 1]

    def line_end(self, position: int) -> int:
        """Where the line of a character ends, behind its \\n."""
        index = bisect.bisect_right(self._lines, position)
        return self._lines[index] if index < len(self._lines) else len(self.text)

    @property
    def newline(self) -> str:
        """The line's end that the text uses."""
        found = re.search(r"\r\n|\r|\n", self.text)
        return found.group() if found else "\n"

    def indent(self, position: int) -> str | None:
        """The space in front of a character, if nothing else of its line is there, else None."""
        before = self.text[self.line_start(position) : position]
        return None if before.strip() else before


def _lambda_step(depth: int, text: str, lambdas: int) -> int:
    """Commas between `lambda` and its colon part its parameters, and no elements."""
    if depth != 1:
        return 0
    return 1 if text == "lambda" else -1 if text == ":" and lambdas else 0


def remove_segments(source: Source, segments: Sequence[Segment], removed: Iterable[int]) -> list[Edit]:
    """Take elements out of a bracket. A comment beside a removed element stays, on a line of its own."""
    gone = set(removed)
    edits: list[Edit] = []
    for index in sorted(gone):
        segment = segments[index]
        if segment.comma >= 0 and source.text[segment.end : segment.comma].strip():
            edits += [Edit(segment.start, segment.end), Edit(segment.comma, segment.comma + 1)]
        elif source.indent(segment.start) is not None and not _is_before_bracket(source, segment):
            edits.append(_of_own_line(source, segment))
        elif segment.comma >= 0:
            edits.append(_of_shared_line(source, segment))
        else:
            edits.append(Edit(_start_of_last(source, segments, index, gone), segment.end))
    return edits


def _is_before_bracket(source: Source, segment: Segment) -> bool:
    """True for the last element if its bracket is closed on the same line: no empty line is left then."""
    rest = source.text[segment.end : source.line_end(segment.end - 1)].lstrip(" \t")
    return segment.comma < 0 and rest.startswith(tuple(_CLOSING))


def _start_of_last(source: Source, segments: Sequence[Segment], index: int, gone: set[int]) -> int:
    """Where to begin with the last element, so that no comma is left behind; comments in between stay."""
    one = index
    while one > 0:
        if source.text[segments[one - 1].end : segments[one].start].strip(" \t\r\n,"):
            break
        one -= 1
        if one not in gone:
            return segments[one].end
    return segments[index].start


def _of_own_line(source: Source, segment: Segment) -> Edit:
    end = source.line_end(segment.stop - 1)
    rest = source.text[segment.stop : end]
    if not rest.strip():
        return Edit(source.line_start(segment.start), end)
    spaces = len(rest) - len(rest.lstrip(" \t"))
    return Edit(segment.start, segment.stop + spaces)


def _of_shared_line(source: Source, segment: Segment) -> Edit:
    end = source.line_end(segment.stop - 1)
    rest = source.text[segment.stop : end]
    following = rest.lstrip(" \t")
    if following.strip() and not following.startswith("#"):
        return Edit(segment.start, segment.stop + len(rest) - len(following))
    before = source.text[: segment.start]
    return Edit(len(before.rstrip(" \t")), segment.stop)


def insert_element(source: Source, segments: Sequence[Segment], index: int, text: str) -> Edit:
    """Put an element in front of another one, in the way in which that one stands."""
    position = segments[index].start
    indent = source.indent(position)
    return Edit(position, position, f"{text}, " if indent is None else f"{text},{source.newline}{indent}")
