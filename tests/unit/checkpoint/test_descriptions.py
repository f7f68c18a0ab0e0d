"""Descriptions of sources: bounded, and without secrets."""

from __future__ import annotations

import pytest

from runtime.checkpoint.savepoint.descriptions import SOURCES_MAX, kind_of, source_description, source_descriptions


@pytest.mark.parametrize(
    ("told", "shown", "kind"),
    [
        ("FileStreamSource[file:/data/in]", "FileStreamSource[file:/data/in]", "FileStreamSource"),
        ("KafkaV2[Subscribe[orders, token-events]]", "KafkaV2[Subscribe[orders, token-events]]", "KafkaV2"),
        (
            "RateStreamV2[rowsPerSecond=5, rampUpTimeSeconds=0]",
            "RateStreamV2[rowsPerSecond=5, rampUpTimeSeconds=0]",
            "RateStreamV2",
        ),
        ("O[https://me:pw@host/x?access_key=abc&day=1]", "O[https://******@host/x?access_key=******&day=1]", "O"),
        (
            "Own[kafka.sasl.jaas.config -> 'a b', topic -> t]",
            "Own[kafka.sasl.jaas.config -> ******, topic -> t]",
            "Own",
        ),
        ('Own{"password": "x y", "n": 1}', 'Own{"password": ******, "n": 1}', "Own"),
        ("two\nlines\x1b[31m", "two lines", "two"),
        ("", "", ""),
    ],
)
def test_a_source_is_told_without_what_signs_in_there(told: str, shown: str, kind: str) -> None:
    found = source_description(told)
    assert found.startswith(shown)
    assert "\x1b" not in found
    assert kind_of(found) == kind


def test_descriptions_are_bounded() -> None:
    assert len(source_description("x" * 100_000)) == 500
    assert len(source_description("password=" * 100_000)) <= 500
    assert len(source_descriptions("x" for _ in range(1000))) == SOURCES_MAX
