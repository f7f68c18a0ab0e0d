"""A script that runs until its file comes, or fails."""

import pathlib
import sys
import time

begun, gate, failure = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
begun.write_text("begun")
while not gate.exists():
    time.sleep(0.05)
if failure:
    raise ValueError(" ".join(failure))
