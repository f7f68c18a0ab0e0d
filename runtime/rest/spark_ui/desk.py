"""What routes of the dashboard know of the origin of Spark's own pages (R58)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from runtime.common.clock import Clock
from runtime.gateways.task_executor import TaskExecutorGateway
from runtime.rest.spark_ui.views import SparkUiViews


@dataclass(frozen=True, slots=True)
class SparkUiSettings:
    """Where it listens; port 0 picks a free one. `address`: the origin under which browsers reach it, "" where that is
    the host by which they reach the dashboard.
    """

    bind_address: str
    port: int
    address: str = ""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The name in `address`, if there is one."""
        name = urlsplit(self.address).hostname if self.address else None
        return (name,) if name else ()

    @property
    def places(self) -> tuple[str, ...]:
        """The same with its port, as `rest.allowed-hosts` has it."""
        return (urlsplit(self.address).netloc,) if self.address else ()


@dataclass(slots=True)
class SparkUi:
    """The pages of one JobManager. `port`: where it listens, 0 before. `task_executor`: as that of `RestContext`, with
    the patience that a first page takes.
    """

    settings: SparkUiSettings
    clock: Clock
    task_executor: Callable[[str], TaskExecutorGateway]
    port: int = 0
    views: SparkUiViews = field(init=False)

    def __post_init__(self) -> None:
        self.views = SparkUiViews(self.clock)
