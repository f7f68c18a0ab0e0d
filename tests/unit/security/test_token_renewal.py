"""When providers of delegation tokens are asked: a decision without a clock (R51)."""

from __future__ import annotations

import math

import pytest

from runtime.security.core.token_renewal import RENEWAL_SECONDS_MIN, RenewalSettings, TokenRenewal


def test_they_are_renewed_after_a_share_of_their_lifetime() -> None:
    renewal = TokenRenewal(RenewalSettings(time_ratio=0.75))
    assert renewal.due_at == -math.inf  # at once
    renewal.obtained(1000.0, 400.0)
    assert renewal.due_at == 1300.0
    renewal.obtained(1300.0, None)
    assert renewal.due_at == math.inf
    renewal.changed()
    assert renewal.due_at == -math.inf


@pytest.mark.parametrize("lifetime", [0.0, 0.001, 1.0])
def test_however_short_they_live_there_is_a_pause(lifetime: float) -> None:
    renewal = TokenRenewal(RenewalSettings(time_ratio=0.75))
    renewal.obtained(50.0, lifetime)
    assert renewal.due_at == 50.0 + RENEWAL_SECONDS_MIN


def test_after_failures_pauses_grow_up_to_the_backoff_and_begin_anew_after_a_success() -> None:
    renewal = TokenRenewal(RenewalSettings(retry_backoff=10.0))
    assert [renewal.failed(0.0) for _ in range(6)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert (renewal.failures, renewal.due_at) == (6, 10.0)
    for _ in range(2000):
        assert renewal.failed(0.0) == 10.0
    renewal.obtained(0.0, 100.0)
    assert (renewal.failures, renewal.failed(5.0), renewal.due_at) == (0, 1.0, 6.0)


def test_a_backoff_below_a_second_is_kept() -> None:
    assert TokenRenewal(RenewalSettings(retry_backoff=0.1)).failed(0.0) == 0.1
