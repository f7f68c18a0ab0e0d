"""DELETE /cluster: an admin stops every process that the leader knows, itself last; not beside a stand-by."""

from __future__ import annotations

import httpx
import pytest

from runtime.common.errors import UnavailableError
from runtime.gateways.process import StopProcessRequest
from runtime.rest.app import create_app
from runtime.rest.context import RestContext
from tests.kit.rest.fakes import RestFakes, shown

pytestmark = pytest.mark.asyncio


def connect(context: RestContext) -> httpx.AsyncClient:
    app = create_app(context, sign_in=shown("token"), content_length_max=1 << 20, hosts={"test"})
    headers = {"authorization": "Bearer token"}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test", headers=headers)


async def test_all_processes_are_told_to_stop() -> None:
    fakes = RestFakes()
    fakes.stand_bys = []
    fakes.processes["127.0.0.1:1"].error = UnavailableError("it is frozen")
    async with connect(fakes.context()) as http:
        answer = await http.delete("/v1/cluster")
    assert (answer.status_code, answer.json()) == (200, {})
    told = [*fakes.processes.values(), fakes.own_process]
    assert [one.asked for one in told] == [[StopProcessRequest()]] * 3, "what cannot be reached stops no other"


async def test_beside_a_stand_by_nothing_stops() -> None:
    fakes = RestFakes()
    async with connect(fakes.context()) as http:
        answer = await http.delete("/cluster")
    assert answer.status_code == 409
    assert "bin/stop-cluster.sh stops all of them" in answer.json()["errors"][0]
    assert not any(one.asked for one in (*fakes.processes.values(), fakes.own_process))


async def test_who_does_not_lead_stops_nothing() -> None:
    fakes = RestFakes()
    fakes.is_leading = False
    async with connect(fakes.context()) as http:
        assert (await http.delete("/cluster")).status_code == 503
    assert not fakes.own_process.asked
