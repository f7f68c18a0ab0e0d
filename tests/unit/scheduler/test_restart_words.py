"""What follows from a failure, in words, also of jobs that earlier releases have archived."""

from __future__ import annotations

import pytest

from runtime.common.restart_strategies import in_words

FLINKS = "Restart with fixed delay (1000 ms). #3 restart attempts."


@pytest.mark.parametrize(
    ("strategy", "user_failures", "words"),
    [
        (FLINKS, "", FLINKS),
        ("no restarts", "final", "After a failure: no restarts; a failure of user code is final"),
        ("no restarts", "restart", "After a failure: no restarts, also after a failure of user code"),
    ],
)
def test_a_sentence_of_an_earlier_release_stays_one(strategy: str, user_failures: str, words: str) -> None:
    assert in_words(strategy, user_failures) == words
