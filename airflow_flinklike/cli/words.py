"""What a command says about a job in the words of its options, and notes on stderr while it builds the job."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_flinklike.exceptions import FlinklikeClientError
from runtime.common.errors import FlinklikeError
from runtime.common.printable import printable

_LIBRARY = "airflow_flinklike"
_CONF = re.compile(r"\bspark_conf(?= spark\.|:)")


def in_options(text: str) -> str:
    """A message of the cluster as the user of a script has written what it is about: `--conf spark.x: ...`."""
    return _CONF.sub("--conf", text)


@contextmanager
def words_of_options(*, is_script: bool) -> Iterator[None]:
    """Errors of building and submitting a script say `--conf`; a pipeline has `spark_conf=` indeed."""
    try:
        yield
    except (FlinklikeClientError, FlinklikeError) as error:
        if is_script and error.args:
            error.args = (in_options(str(error.args[0])), *error.args[1:])
        raise


@contextmanager
def notes_on_stderr(*, is_quiet: bool) -> Iterator[None]:
    """What the library logs meanwhile is a line on stderr. `is_quiet`: warnings only."""
    logger = logging.getLogger(_LIBRARY)
    before = logger.level, logger.propagate
    handler = _Notes(logging.WARNING if is_quiet else logging.INFO)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Write the line. A stderr that is gone ends no command."""
        try:
            sys.stderr.write(f"note: {printable(record.getMessage())}\n")
        except OSError:
            self.handleError(record)
