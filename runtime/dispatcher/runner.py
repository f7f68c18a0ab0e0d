"""DispatcherRunner: stands for leadership, and runs one DispatcherLeaderProcess per term won."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from runtime.aio.watch import Watch
from runtime.dispatcher.leader_process import DispatcherLeaderProcess, TermComponents
from runtime.highavailability.leadership.election import LeaderElection, LeadershipEpoch

logger = logging.getLogger(__name__)


class DispatcherRunner:
    """`leading` has the components of the term from its recovery until its end is noticed, None otherwise.

    A term does nothing before `prepare` has ended: this process knows then what the leader before has promised (R48).
    """

    def __init__(
        self,
        election: LeaderElection,
        create: Callable[[LeadershipEpoch], DispatcherLeaderProcess],
        prepare: Callable[[], Awaitable[None]],
    ) -> None:
        self._election = election
        self._prepare = prepare
        self._create = create
        self._epoch: LeadershipEpoch | None = None
        self.leading: Watch[TermComponents | None] = Watch(None)

    @property
    def serving(self) -> TermComponents | None:
        """The components that may answer now: right also in the first instant after a freeze (R4).

        A term that may be over does not know what its successor has accepted, and must not say that it does not exist.
        """
        return self.leading.value if self._epoch is not None and self._epoch.is_valid else None

    async def run(self) -> None:
        """Stand for leadership, lead, lose, stand again, until cancelled: then resign. Raises what breaks a term."""
        await self._election.run(self._lead)

    async def _lead(self, epoch: LeadershipEpoch) -> None:
        self._epoch = epoch
        try:
            await self._prepare()
            await self._create(epoch).run(self.leading.set)
        finally:
            self.leading.set(None)
            logger.info("leader term %d is over", epoch.epoch)
