"""Control planes that live in the test's event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.kit.control_plane.plane import ControlPlane


@pytest_asyncio.fixture(params=["standalone", "split"])
async def plane(request: pytest.FixtureRequest) -> AsyncIterator[ControlPlane]:
    """A world in either mode."""
    made = ControlPlane(is_split=request.param == "split")
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def split() -> AsyncIterator[ControlPlane]:
    """A world with JobMaster processes."""
    made = ControlPlane(is_split=True)
    yield made
    await made.stop()
