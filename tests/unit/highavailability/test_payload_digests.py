"""The digest in a record covers its object in the storage, and the record's seal covers the digest (R38)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from runtime.highavailability.jobs.payloads import INLINE_BYTES_MAX, PayloadCorruptError, Payloads
from tests.kit.control_plane.memory_objects import MemoryObjectStore

LARGE = b"x" * (INLINE_BYTES_MAX + 1)


def test_an_object_that_was_replaced_is_refused() -> None:
    objects = MemoryObjectStore()
    payload = asyncio.run(Payloads(objects).store(LARGE))
    assert asyncio.run(Payloads(objects).load(payload)) == LARGE
    objects.objects[payload.object_key] = b"y" + LARGE[1:]
    with pytest.raises(PayloadCorruptError, match="does not have the recorded digest"):
        asyncio.run(Payloads(objects).load(payload))


def test_a_whole_object_of_another_content_is_refused() -> None:
    """It has the digest in its name, but not the one in the record."""
    objects = MemoryObjectStore()
    payload, other = (asyncio.run(Payloads(objects).store(data)) for data in (LARGE, LARGE + b"y"))
    with pytest.raises(PayloadCorruptError):
        asyncio.run(Payloads(objects).load(replace(payload, object_key=other.object_key)))


def test_what_is_inline_is_looked_at_too() -> None:
    payloads = Payloads(MemoryObjectStore())
    payload = asyncio.run(payloads.store(b"code"))
    with pytest.raises(PayloadCorruptError):
        asyncio.run(payloads.load(replace(payload, inline=b"edoc")))
