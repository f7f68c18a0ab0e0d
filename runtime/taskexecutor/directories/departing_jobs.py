"""Jobs that leave this TaskManager. One that comes back waits until nothing of its first stay is left here (R50)."""

from __future__ import annotations

from runtime.aio.watch import Watch
from runtime.common.ids import JobId


class DepartingJobs:
    """The jobs whose files are being deleted now."""

    def __init__(self) -> None:
        self._under_way: dict[JobId, int] = {}
        self._ends: Watch[None] = Watch(None)

    def begin(self, job_id: JobId) -> None:
        """From now on `wait` waits."""
        self._under_way[job_id] = self._under_way.get(job_id, 0) + 1

    def end(self, job_id: JobId) -> None:
        """For each `begin`, once."""
        self._under_way[job_id] -= 1
        if not self._under_way[job_id]:
            del self._under_way[job_id]
            self._ends.set(None)

    async def wait(self, job_id: JobId) -> None:
        """Returns at once for a job that is not leaving."""
        while job_id in self._under_way:
            await self._ends.wait_changed(self._ends.generation)
