"""Plug-ins that label failures: how they are found, which labels are kept, and what a failing plug-in costs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId
from runtime.gateways.failure_enricher import FailureContext
from runtime.jobmaster.failure_enrichers import (
    ENTRY_POINT_GROUP,
    LABEL_LENGTH_MAX,
    FailureEnrichers,
    TypeFailureEnricher,
    load_failure_enrichers,
)
from tests.kit.control_plane.job_master_driver import user_failure

CONTEXT = FailureContext(JobId("1" * 32), "daily", "read (1/1) - execution #0", user_failure())


class Fixed:
    """Says what it was made with."""

    def __init__(self, labels: Mapping[str, str], *keys: str) -> None:
        self.output_keys = frozenset(keys or labels)
        self._labels = labels

    def enrich(self, context: FailureContext, /) -> Mapping[str, str]:
        assert context is CONTEXT
        return self._labels


class Broken:
    """Raises."""

    output_keys = frozenset({"team"})

    def enrich(self, context: FailureContext, /) -> Mapping[str, str]:
        raise RuntimeError(context.job_name)


@pytest.mark.parametrize("kind", ["USER", "SYSTEM", "RESOURCE"])
def test_the_shipped_one_says_whose_mistake_it_was(kind: str) -> None:
    failure = type(CONTEXT.failure)("E", "m", "", kind, is_recoverable=True, timestamp_millis=0)
    assert TypeFailureEnricher().enrich(FailureContext(CONTEXT.job_id, "", "", failure)) == {"type": kind}


def test_labels_of_all_are_put_together() -> None:
    enrichers = FailureEnrichers({"a": Fixed({"team": "sales"}), "b": Fixed({"type": "USER"})})
    assert enrichers(CONTEXT) == {"team": "sales", "type": "USER"}
    assert FailureEnrichers({})(CONTEXT) == {}


def test_keys_that_were_not_declared_are_dropped() -> None:
    assert FailureEnrichers({"a": Fixed({"team": "sales", "more": "x"}, "team")})(CONTEXT) == {"team": "sales"}


def test_keys_that_two_have_declared_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    enrichers = FailureEnrichers({"a": Fixed({"team": "x", "own": "1"}), "b": Fixed({"team": "y"})})
    assert enrichers(CONTEXT) == {"own": "1"}
    assert "2 failure enrichers have the label team" in caplog.text


def test_one_that_fails_costs_its_own_labels_only(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert FailureEnrichers({"a": Broken(), "b": TypeFailureEnricher()})(CONTEXT) == {"type": "USER"}
    assert f"failure enricher a failed on a failure of job {CONTEXT.job_id}" in caplog.text


def test_labels_are_bounded() -> None:
    assert len(FailureEnrichers({"a": Fixed({"team": "x" * 5000})})(CONTEXT)["team"]) == LABEL_LENGTH_MAX


def test_a_plug_in_is_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_enricher.py").write_text(
        "class Team:\n"
        "    output_keys = frozenset({'team'})\n"
        "    def enrich(self, context):\n"
        "        return {'team': f'owner of {context.job_name}'}\n"
    )
    information = tmp_path / "own_enricher-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: own-enricher\nVersion: 1\n")
    (information / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\nteam = own_enricher:Team\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert load_failure_enrichers(("type", "team"))(CONTEXT) == {"type": "USER", "team": "owner of daily"}


def test_a_name_that_nobody_has_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="no failure enricher guess: known are "):
        load_failure_enrichers(("guess",))
