"""How long the control plane needed to recover, seen from outside: REST answers again, jobs have another owner."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx

from runtime.rest.forwarding.forward_seal import FORWARDED

_EVERY = 0.03
_REQUEST_TIMEOUT = 1.0
_ENDED = frozenset({"FINISHED", "FAILED", "CANCELED"})


class Watch:
    """Looks at a cluster over REST, at all of its addresses, without the patience of the product's client."""

    def __init__(self, addresses: Sequence[str], token: str) -> None:
        self.addresses = list(addresses)
        self._http = httpx.AsyncClient(
            headers={"authorization": f"Bearer {token}"},
            timeout=_REQUEST_TIMEOUT,
            verify=False,  # plain http
            trust_env=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def get(self, address: str, path: str, *, by_itself: bool = False) -> Any:
        """The body of a 200; None for everything else. `by_itself`: not through another JobManager that leads."""
        headers = {FORWARDED.decode(): "1"} if by_itself else {}
        try:
            answer = await self._http.get(address + path, headers=headers)
        except httpx.HTTPError:
            return None
        return answer.json() if answer.status_code == 200 else None

    async def ask(self, path: str) -> Any:
        """The first answer of any address; None when there is none."""
        asked = [asyncio.ensure_future(self.get(address, path)) for address in self.addresses]
        try:
            for done in asyncio.as_completed(asked):
                if (found := await done) is not None:
                    return found
        finally:
            for one in asked:
                one.cancel()
        return None

    async def seconds_until(self, look: Callable[[], Awaitable[bool]], timeout: float) -> float | None:
        """From now until `look` sees it; None when it does not in time."""
        begin = time.monotonic()
        while time.monotonic() - begin < timeout:
            if await look():
                return time.monotonic() - begin
            await asyncio.sleep(_EVERY)
        return None

    async def leads(self, address: str) -> bool:
        """True when the JobManager whose REST is there answers by itself."""
        return await self.get(address, "/overview", by_itself=True) is not None

    async def rest_answers(self, path: str = "/overview") -> bool:
        """True when some JobManager leads and answers."""
        return await self.ask(path) is not None

    async def jobs_of(self, job_master: str) -> list[str]:
        """Jobs that the JobMaster process at this address runs, and whose tasks do."""
        overview = await self.ask("/jobs/overview")
        running = [one["jid"] for one in (overview or {"jobs": []})["jobs"] if one["state"] == "RUNNING"]
        details = [await self.ask(f"/jobs/{job_id}") for job_id in running]
        return [one["jid"] for one in details if one is not None and one["jobmaster"] == job_master]

    async def have_left(self, jobs: Sequence[str], job_master: str) -> bool:
        """True when each of the jobs has ended or runs under another owner."""
        for job_id in jobs:
            found = await self.ask(f"/jobs/{job_id}")
            if found is None:
                return False
            is_owned = found["jobmaster"] not in {"", job_master} and found["state"] != "INITIALIZING"
            if found["state"] not in _ENDED and not is_owned:
                return False
        return True
