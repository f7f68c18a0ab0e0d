"""What people are told of outputs that a job has left hidden, and what they can do with them (R28)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from runtime.gateways.task import OutputDirectory

NAMED_MAX = 20
"""Of more directories the command names their beginning, once for each base."""


def how_to_commit(outputs: Sequence[OutputDirectory]) -> str:
    """The hidden directories, and the command that makes them visible."""
    return f"what its tasks wrote is kept in hidden directories; to commit them: {commit_command(outputs)}"


def commit_command(outputs: Sequence[OutputDirectory]) -> str:
    """`bin/commit-outputs.sh MODE=DIRECTORY ...`"""
    named = [f"{output.mode}={output.directory}" for output in outputs]
    if len(named) > NAMED_MAX:
        named = list(dict.fromkeys(f"{name.rpartition('/')[0]}/{_all_of_the_job(name)}" for name in named))
    return shlex.join(["bin/commit-outputs.sh", *named])


def _all_of_the_job(name: str) -> str:
    return f"{name.rpartition('/')[2].partition('_')[0]}_*"
