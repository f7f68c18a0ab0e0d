"""Pickles that say for which session they are read, before anything of the user is read (R24, R29).

The driver of a Python streaming source, and of `transformWithState`, is a child of the JVM, which names no session to
it. That process reads first of all a pickle: a data source that a worker of the session has made, or the session's own
processor. Processes that work for the session already read such a pickle as if it were a plain one.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

from runtime.taskexecutor.worker_protocol import session_marks
from runtime.taskexecutor.worker_protocol.session_work import begin_for


class Owned:
    """Pickles as a call of `read_owned`, which makes the reader work for the session; `content` is pickled already."""

    def __init__(self, session_id: str, link: str, content: bytes) -> None:
        self._arguments = (session_id, link, content)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str, bytes]]:
        return read_owned, self._arguments


def read_owned(session_id: str, link: str, content: bytes) -> Any:
    """The object in `content`. From here on this process works for the session."""
    if not session_marks.works_for(session_id):
        if os.getpgid(0) != os.getpid():
            os.setpgid(0, 0)  # a function that signals its group reaches itself, and not the JVM (R23)
        begin_for(session_id, link, os.getcwd())  # noqa: PTH109 - workers import this
    return pickle.loads(content)  # noqa: S301 - of the session itself
