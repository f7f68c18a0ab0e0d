"""R4 as arithmetic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runtime.highavailability.kv.core.lease import LeaseValidity


def test_valid_from_the_send_time_for_less_than_the_ttl() -> None:
    validity = LeaseValidity(sent_at=100.0, ttl=5.0)
    assert validity.is_valid(104.9)
    assert not validity.is_valid(104.95)
    assert validity.renew_at == 100.0 + 5.0 / 3


def test_an_answer_that_was_overtaken_shortens_nothing() -> None:
    validity = LeaseValidity(100.0, 5.0).acknowledged(103.0, 5.0)
    assert validity.sent_at == 103.0
    assert validity.acknowledged(101.0, 5.0) == validity


@given(
    st.floats(0, 1e6),
    st.floats(1.0, 60.0),
    st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 3.0)), max_size=10),
    st.floats(0.0, 120.0),
)
def test_never_valid_longer_than_the_server_thinks(
    start: float, ttl: float, renewals: list[tuple[float, float]], later: float
) -> None:
    """The server counts from when it received a renewal, which is between our sending and the answer."""
    validity, server_until, now = LeaseValidity(start, ttl), start + ttl, start
    for pause, way in renewals:
        sent_at = now + pause
        received_at = sent_at + way
        if received_at >= server_until:
            break
        server_until = received_at + ttl
        validity = validity.acknowledged(sent_at, ttl)
        now = received_at
    asked_at = now + later
    assert not validity.is_valid(asked_at) or asked_at < server_until
