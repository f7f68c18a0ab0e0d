"""Object keys are found by their form wherever they stand (R19)."""

from __future__ import annotations

import pytest

from runtime.highavailability.jobs.references import object_keys_in

A, B = "a" * 64 + "-" + "b" * 32, "0" * 64 + "-" + "1" * 32


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (A, {A}),
        (f'{{"key":"{A}","x":["{B}","{A}"]}}', {A, B}),
        (f"{A}:{B}", {A, B}),
        (f"a{A}", set()),
        (f"{A}f", set()),
        (A[1:], set()),
        (A.upper(), set()),
        ("-" * 200, set()),
        ("", set()),
    ],
)
def test_keys_in_a_text(text: str, found: set[str]) -> None:
    assert object_keys_in(text.encode()) == found
