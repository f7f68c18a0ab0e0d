"""R62: no job is stored that starts from a savepoint of which it is stored that it may go, under any leader."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.common.errors import ConflictError
from runtime.gateways.dispatcher import SubmitOutcome
from runtime.gateways.operations import OperationState, SavepointDisposal
from tests.kit.control_plane.plane import ControlPlane

pytestmark = pytest.mark.asyncio
PATH = "/savepoints/savepoint-aaaaaa-000000000001"
GRAPH = b'{"name":"orders","savepoint":{"path":"file:///elsewhere/savepoint-aaaaaa-000000000001"}}'
WISH = SavepointDisposal("c" * 32, PATH, OperationState.IN_PROGRESS, 1)


async def test_a_savepoint_that_may_go_starts_no_job(plane: ControlPlane) -> None:
    leader = await plane.lead()
    store = leader.dispatcher.disposals
    assert store is not None
    wish = await store.add(WISH)
    early = plane.new_job(GRAPH)
    accepted = await leader.dispatcher.submit_job(early)
    assert accepted.outcome is SubmitOutcome.ACCEPTED, "nobody has looked for readers yet"
    (stored,) = await store.all()
    await store.replace(stored, replace(wish, job_id="a" * 32))

    for dispatcher in (leader.dispatcher, (await plane.lead()).dispatcher):
        with pytest.raises(ConflictError, match=f"is being deleted.*{'c' * 32}"):
            await dispatcher.submit_job(plane.new_job(GRAPH))
        again = await dispatcher.submit_job(early)
        assert again.outcome is not SubmitOutcome.ACCEPTED, "what is stored stays"
        assert (await dispatcher.submit_job(plane.new_job())).outcome is SubmitOutcome.ACCEPTED


async def test_one_that_stays_after_all_starts_jobs_again(plane: ControlPlane) -> None:
    leader = await plane.lead()
    store = leader.dispatcher.disposals
    assert store is not None
    await store.add(replace(WISH, job_id="a" * 32))
    (stored,) = await store.all()
    await store.replace(stored, replace(stored.disposal, state=OperationState.FAILED))
    accepted = await leader.dispatcher.submit_job(plane.new_job(GRAPH))
    assert accepted.outcome is SubmitOutcome.ACCEPTED
