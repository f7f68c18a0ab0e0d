"""Code of jobs that say something: referred to by name."""

import time
from typing import Any


def talk(ctx: Any) -> None:
    """One line, and a while, so that two of them run in two slots."""
    print(f"talks in {ctx.job_id}", flush=True)
    time.sleep(float(ctx.params["seconds"]))
