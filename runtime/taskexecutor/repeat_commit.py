"""`bin/commit-outputs.sh BASE/.commit-JOB_ID`: repeat a commit whose job has FAILED, from what it has left in storage.

The job is over, so nobody else moves (R27); every step is the same as a TaskManager's, and may be repeated (R28).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from runtime.aio.clock import LoopClock
from runtime.common.errors import FlinklikeError
from runtime.gateways.job_master import CommitOutputs
from runtime.taskexecutor.output_files import output_files
from runtime.taskexecutor.output_move import PARALLEL_MAX, OutputMove, Permit, commit_names, read_claim
from runtime.taskexecutor.output_names import HIDDEN_COMMIT


def main(arguments: Sequence[str]) -> int:
    """Exit code 0 when everything is visible, 1 with a sentence when not, 2 for wrong arguments."""
    directory = arguments[0].rstrip("/") if len(arguments) == 1 else ""
    base, _, name = directory.rpartition("/")
    if not base or not name.startswith(HIDDEN_COMMIT):
        sys.stderr.write(f"usage: commit-outputs.sh BASE/{HIDDEN_COMMIT}JOB_ID, as the failure of the job names it\n")
        return 2
    try:
        data = output_files(base).read(f"{name}/order")
        message = read_claim(data) if data is not None else None
        if message is None or commit_names(message.job_id).directory != name:
            sys.stderr.write(f"{directory} holds no order to commit outputs: there is nothing to repeat\n")
            return 1
        asyncio.run(_repeat(replace(message, order=message.order + 1)))
        for one in dict.fromkeys(output.base for output in message.outputs):
            output_files(one).remove_tree(name)
    except (FlinklikeError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"the outputs of job {message.job_id} are committed\n")
    return 0


async def _repeat(message: CommitOutputs) -> None:
    def report(moved: int, total: int, problem: str) -> None:
        sys.stdout.write(f"{moved} of {total} files{': ' if problem else ''}{problem}\n")

    with ThreadPoolExecutor(PARALLEL_MAX) as executor:
        await OutputMove(message, Permit(), executor, report, LoopClock(), patience=60.0).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
