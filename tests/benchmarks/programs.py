"""Code that benchmark jobs run, referred to by name so that every submit has the same digest."""

import time
from typing import Any


def no_op(_ctx: Any) -> None:
    """Nothing."""


def count(ctx: Any) -> int:
    """The smallest Spark job that people recognise."""
    return int(ctx.spark.range(1000).count())


def nap(ctx: Any) -> None:
    """Sleep for params['seconds'], or until cancelled."""
    deadline = time.monotonic() + float(ctx.params["seconds"])
    while time.monotonic() < deadline and not ctx.cancelled:
        time.sleep(0.2)
