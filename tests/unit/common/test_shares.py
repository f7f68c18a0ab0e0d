"""Which queue a job may be in (R48), and which one it has when it names none (D-128)."""

from __future__ import annotations

import pytest

from runtime.common.errors import ForbiddenError, InvalidInputError
from runtime.common.shares import QueuePolicy, QueueSettings, Submitter, check_queue, in_slots

SAM = Submitter("sam", "team-a", is_of_all=False)
ADMIN = Submitter("", "default", is_of_all=True)
OTTO = Submitter("otto", "default", is_of_all=True)
QUEUES = {
    "etl": QueueSettings(min_slots=4, namespaces=("team-a", "team-c")),
    "reports": QueueSettings(min_slots=4, namespaces=("team-b",)),
    "ours": QueueSettings(weight=2),
    "all": QueueSettings(namespaces=("*",)),
}
OPEN, CLOSED = QueuePolicy(QUEUES), QueuePolicy(QUEUES, is_open=False)


@pytest.mark.parametrize(
    ("policy", "submitter", "asked", "team", "queue"),
    [
        (OPEN, SAM, "", "", "sam"),
        (OPEN, ADMIN, "", "", "default"),
        (OPEN, OTTO, "", "", "otto"),
        (OPEN, SAM, "etl", "reports", "etl"),
        (OPEN, SAM, "all", "", "all"),
        (OPEN, SAM, "default", "", "default"),
        (OPEN, SAM, "sam", "", "sam"),
        (OPEN, ADMIN, "reports", "", "reports"),
        (OPEN, ADMIN, "new", "", "new"),
        (OPEN, SAM, "", "etl", "etl"),
        (OPEN, SAM, "", "reports", "sam"),
        (OPEN, SAM, "", "new", "sam"),
        (OPEN, SAM, "", "no such / name", "sam"),
        (OPEN, ADMIN, "", "new", "new"),
        (CLOSED, SAM, "", "", "default"),
        (CLOSED, ADMIN, "", "new", "default"),
        (CLOSED, ADMIN, "", "ours", "ours"),
        (CLOSED, SAM, "etl", "", "etl"),
        (OPEN, Submitter("reports", "team-a", is_of_all=False), "", "", "default"),
        (OPEN, Submitter("reports", "team-b", is_of_all=False), "", "", "reports"),
    ],
)
def test_the_queue_of_a_job(policy: QueuePolicy, submitter: Submitter, asked: str, team: str, queue: str) -> None:
    assert policy.queue_for(submitter, asked, team) == queue


@pytest.mark.parametrize("asked", ["reports", "ours", "new", "tom"])
def test_a_user_of_one_namespace_takes_no_share_of_others_and_makes_none(asked: str) -> None:
    words = f"slotmanager.queue.{asked}.namespaces has team-a"
    with pytest.raises(ForbiddenError, match=words):
        OPEN.queue_for(SAM, asked)
    with pytest.raises(ForbiddenError, match=words):
        CLOSED.queue_for(SAM, asked)


@pytest.mark.parametrize("submitter", [ADMIN, SAM])
def test_a_closed_set_says_what_there_is(submitter: Submitter) -> None:
    asked = submitter.name or "new"
    with pytest.raises(InvalidInputError, match=f"no queue {asked}.* there are all, default, etl, ours, reports"):
        CLOSED.queue_for(submitter, asked)


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "-a", ".a", "a" * 128, "a\n", "ä", "<b>"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a queue: expected up to 127"):
        check_queue(name)
    assert not OPEN.may_be(name, ADMIN)


@pytest.mark.parametrize("name", ["a", "root.etl", "sam@example.org", "A_b-c", "7", "a" * 127])
def test_what_is_a_name(name: str) -> None:
    assert check_queue(name) == name


def test_shares_in_words() -> None:
    assert [in_slots(share) for share in (1.0, 4.0, 3.3333333, 0.5)] == [
        "1 slot",
        "4 slots",
        "3.333 slots",
        "0.5 slots",
    ]
