"""`bin/fuzz.sh`: campaigns on all surfaces, or on some, and their figures."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz import campaign
from tests.fuzz.surfaces import SURFACES

_HEAD = "surface            inputs  ways crashes hangs memory   longest      peak     grown      CPU"


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 when something was found: each finding with the file that it lies in."""
    parser = argparse.ArgumentParser(
        prog="fuzz.sh", description="Feeds hostile input to every parser.", allow_abbrev=False
    )
    parser.add_argument("--surface", action="append", choices=sorted(SURFACES), help="only this one (more than once)")
    parser.add_argument(
        "--minutes", type=float, help="CPU minutes in all; without it a smoke run of a few hundred inputs each"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the mutations")
    parser.add_argument("--keep", type=Path, help="directory for inputs that break something")
    parser.add_argument("--json", action="store_true", help="a line of JSON per surface")
    given = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    names = given.surface or sorted(SURFACES)
    kept = given.keep or Path(tempfile.mkdtemp(prefix="flinklike-fuzz."))
    seconds = 60 * given.minutes / len(names) if given.minutes else 0.0
    if not given.json:
        print(_HEAD)
    found = False
    for name in names:
        surface = SURFACES[name]
        inputs = 0 if seconds else surface.smoke_inputs
        figures = campaign.run(surface, seed=given.seed, inputs=inputs, cpu_seconds=seconds, kept=kept)
        print(figures.to_json() if given.json else _row(figures), flush=True)
        for one in figures.findings:
            found = True
            if not given.json:
                print(f"  {one.kind}: {one.where}\n    {one.file}", flush=True)
    return int(found)


def _row(figures: campaign.Figures) -> str:
    crashes, hangs, memory = (figures.count(kind) for kind in ("crash", "hang", "memory"))
    crashes, hangs, memory = (figures.count(kind) for kind in ("crash", "hang", "memory"))
    return (
        f"{figures.surface:16} {figures.inputs:8} {figures.ways:5} {crashes:7} {hangs:5} {memory:6} "
        f"{1000 * figures.longest_cpu_seconds:6.0f} ms {figures.peak_bytes / 2**20:6.1f} MB "
        f"{figures.growth_bytes / 2**20:6.1f} MB {figures.cpu_seconds:6.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
