"""A program: `bin/commit-outputs.sh` where it is known that the job is over."""

from __future__ import annotations

import sys

from runtime.taskexecutor.outputs import repeat_commit

if __name__ == "__main__":
    sys.exit(repeat_commit.main(sys.argv[1:]))
