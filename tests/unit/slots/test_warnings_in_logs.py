"""A warning about static conf is one line of the attempt's log, also where user code has configured logging."""

from __future__ import annotations

import io
import logging
import re
import warnings
from pathlib import Path

from runtime.taskexecutor.slot_process.attempt_scope import AttemptLogging
from runtime.taskexecutor.slot_process.static_conf import StaticConfWarning


def test_ours_are_a_line_of_the_log_and_those_of_user_code_pass_through_its_own_logging(tmp_path: Path) -> None:
    own = io.StringIO()
    before = warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with AttemptLogging(str(tmp_path)):
            logging.basicConfig(stream=own, format="mine: %(message)s", force=True)
            warnings.warn_explicit("spark.x has no effect", StaticConfWarning, "Spark conf", 1)
            warnings.warn_explicit("its own", UserWarning, "etl.py", 3)
    assert warnings.showwarning == before
    assert re.fullmatch(r"[-\d]+ [\d:,]+ WARNING flinklike - spark\.x has no effect\n", (tmp_path / "log").read_text())
    assert own.getvalue() == "mine: etl.py:3: UserWarning: its own\n\n"
