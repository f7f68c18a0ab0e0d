"""Restores the queries of a streaming script from the job's savepoint, each by its name when it starts first (R60)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.checkpoint.savepoint.savepoint_files import local_path, read_savepoint
from runtime.common.errors import InvalidInputError, NotFoundError
from runtime.jobgraph.savepoints import ALL_QUERIES, QueryRestoreSettings, parse_query_settings
from runtime.taskexecutor.slot_process.restoring import (
    path_of,
    query_to_restore,
    restore_from,
    sources_of,
    warn_of_others,
    written_path,
)
from runtime.taskexecutor.slot_protocol.wire import WorkOrder

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_NAMES_SHOWN = 20
_ALLOW = "Start it, or allow that its state is left behind (--allow-non-restored-state, allowNonRestoredState)"
_logger = logging.getLogger(__name__)


class ScriptRestore:
    """What the queries of a streaming script get of the job's savepoint, each by its name when it starts first (R60).

    Which queries a script starts is known when it has ended. What the savepoint has of others is not lost silently.
    """

    def __init__(self, order: WorkOrder) -> None:
        self._order = order
        self._settings = parse_query_settings(order.savepoint)
        self._left: frozenset[str] = frozenset()
        self._read: dict[str, tuple[str, ...]] = {}

    @property
    def left(self) -> list[str]:
        """Queries of the savepoint that the job has not started and may not leave behind, as of the last start."""
        return sorted(self._left)

    def restore(
        self, name: str, directory: str, writer: DataStreamWriter, table: str | None, *, to_table: bool
    ) -> None:
        """As `restoring.restore`. `table`: the path that the query writes to, if its start says so. `to_table`: it
        writes to a table of the catalog.

        Raises InvalidInputError also for a query that the savepoint does not have.
        """
        settings, spark = self._settings, writer._df.sparkSession  # noqa: SLF001 - Spark has no other way to it
        if settings is None:
            return
        path, place = local_path(settings.path), local_path(directory)
        if not place.exists():
            self._check(path, name, settings, to_table=to_table)
            written = path_of(table) if table else written_path(writer)
            # What it says of others is looked at in `_left_of`.
            alone = settings.model_copy(update={"queries": {name: 1}, "allow_non_restored_state": True})
            to_restore = query_to_restore(self._order, alone, name, directory, written, spark)
            if sources := restore_from(path, to_restore):
                self._read[name] = sources
        self._left = self._left_of(path, place.parent.parent, settings)

    def look_at_sources(self, name: str, query: StreamingQuery, *, has_failed: bool) -> None:
        """Once it is known what a restored query reads: a warning if that is not what it did in the savepoint."""
        if name in self._read and ((now := sources_of(query)) or has_failed):
            warn_of_others(name, self._read.pop(name), now)

    @staticmethod
    def _check(path: Path, name: str, settings: QueryRestoreSettings, *, to_table: bool) -> None:
        """Raises InvalidInputError where the query would begin anew or lose rows, and for partitions of no query."""
        saved = _saved_in(path)
        if to_table and (log := saved.get(name)):
            message = (
                f"savepoint {path} has {name!r} with files in {log}, and the query writes to a table of the catalog, "
                "whose log is not put back to the savepoint: have it write to that path, start(path)"
            )
            raise InvalidInputError(message)
        if name not in saved and not settings.allow_non_restored_state:
            message = (
                f"the query {name!r} of the script is not in savepoint {path}, which has {listed(saved)}: it would "
                "begin anew. Name it as it was, or allow that (--allow-non-restored-state, allowNonRestoredState)"
            )
            raise InvalidInputError(message)
        if unknown := sorted(set(settings.state_partitions) - set(saved) - {ALL_QUERIES}):
            message = f"state partitions are named for {unknown[0]!r}, and savepoint {path} has {listed(saved)}"
            raise InvalidInputError(message)

    @staticmethod
    def _left_of(path: Path, state: Path, settings: QueryRestoreSettings) -> frozenset[str]:
        if settings.allow_non_restored_state:
            return frozenset()
        try:
            saved = _saved_in(path)
        except InvalidInputError as error:  # all that this attempt needed of it is restored
            _logger.warning("which queries are left of the savepoint cannot be told: %s", error)
            return frozenset()
        return frozenset(name for name in saved if not (state / name / "0").exists())

    def require_all(self) -> None:
        """The script has ended. Raises InvalidInputError where it has left state of the savepoint behind."""
        if self._settings is not None:
            path, state = local_path(self._settings.path), local_path(self._order.checkpoint_directory)
            self._left = self._left_of(path, state, self._settings)
        if self.left:
            raise InvalidInputError(f"{self.words()}, and has ended. {_ALLOW}")

    def words(self) -> str:
        """What is left, for people."""
        settings = self._settings
        assert settings is not None, "nothing is left of no savepoint"
        return f"the script has not started {listed(self.left)} of savepoint {settings.path}"


def _saved_in(path: Path) -> dict[str, str]:
    """The queries of a savepoint, and where those with a file sink write. Raises InvalidInputError."""
    try:
        return {query.uid: query.snapshot.sink_path for query in read_savepoint(path).queries}
    except NotFoundError as error:
        raise InvalidInputError(str(error)) from error


def listed(names: Iterable[str]) -> str:
    """The names for people, not all of many."""
    every = sorted(names)
    shown = ", ".join(map(repr, every[:_NAMES_SHOWN]))
    return f"{shown} and {len(every) - _NAMES_SHOWN} more" if len(every) > _NAMES_SHOWN else shown or "no query"
