"""REST's view of a real blob server: what a client sent wrongly is the client's error."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from runtime.aio.blocking import BlockingIo
from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.blob.directory import open_directory
from runtime.blob.server import BlobServer
from runtime.blob.store import BlobStore, BlobStoreSettings
from runtime.entrypoint.storage import RestBlobs
from runtime.rest.app import create_app
from runtime.rest.context import LeaderComponents
from tests.kit.rest.fakes import RestFakes

DATA = b"x" * 100


@pytest_asyncio.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    io = BlockingIo()
    settings = BlobStoreSettings(object_bytes_max=1000)
    store = BlobStore(open_directory(tmp_path.as_uri()), settings, io, LoopClock(), SystemEntropy())
    fakes = RestFakes()
    components = LeaderComponents(
        fakes.dispatcher, fakes.resource_manager, RestBlobs(BlobServer(store)), fakes.jars, ""
    )
    app = create_app(
        replace(fakes.context(), leader=lambda: components),
        sign_in=None,
        content_length_max=1 << 20,
        hosts={"test"},
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
        yield client
    io.close()


@pytest.mark.asyncio
async def test_uploads(http: httpx.AsyncClient) -> None:
    sha = hashlib.sha256(DATA).hexdigest()
    stored = await http.put(f"/blobs/{sha}", content=DATA)
    assert stored.status_code == 201
    assert (await http.get(f"/blobs/{stored.json()['key']}")).content == DATA
    assert (await http.put(f"/blobs/{'1' * 64}", content=DATA)).status_code == 400
    assert (await http.put(f"/blobs/{sha}", content=DATA * 20)).status_code == 413
