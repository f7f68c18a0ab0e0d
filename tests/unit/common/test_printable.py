"""R41: text of jobs and clients cannot control a terminal."""

from __future__ import annotations

import logging
import sys
import unicodedata

import pytest

from runtime.common.printable import printable, printable_output
from runtime.entrypoint.logging_setup import PrintableFormatter

DIRECTIONS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.mark.parametrize(
    "text", ["", "orders", "Zwölf Umsätze 数据", "a\tb\nc\r\nd", "\u05d0\u05d1", "emoji \U0001f600"]
)
def test_what_people_write_stays(text: str) -> None:
    assert printable(text) == printable_output(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("over\rwritten", "over\\x0dwritten"),
        ("bell\x07 del\x7f csi\x9b nul\x00", "bell\\x07 del\\x7f csi\\x9b nul\\x00"),
        ("user\u202etxt.exe", "user\\u202etxt.exe"),
        ("line\u2028line", "line\\u2028line"),
    ],
)
def test_what_steers_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_no_control_of_any_kind_is_left() -> None:
    everything = "".join(map(chr, (code for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF)))
    for shown in (printable(everything), printable_output(everything)):
        assert {one for one in shown if unicodedata.category(one) == "Cc"} <= {"\t", "\n", "\r"}
        assert not set(DIRECTIONS) & set(shown)


def test_output_keeps_its_colours_and_nothing_else() -> None:
    assert printable_output("\x1b[1;31mred\x1b[0m") == "\x1b[1;31mred\x1b[0m"
    assert printable_output("\x1b[38:2::1:2:3mtrue\x1b[m") == "\x1b[38:2::1:2:3mtrue\x1b[m"
    for steering in ("\x1b[2J", "\x1b]0;title\x07", "\x1b[6n", "\x1b[?1049h", "\x1bc", "\x1b[1m\x1b[5A"):
        assert "\x1b" not in printable_output(steering).replace("\x1b[1m", "")


def test_log_lines_of_processes_are_printable() -> None:
    record = logging.LogRecord("a", logging.INFO, "", 1, "job %s fails", ("\x1b[2J\u202e",), None)
    assert PrintableFormatter("%(message)s").format(record) == "job \\x1b[2J\\u202e fails"
