"""Processes whose first thread has ended while another one runs: to the kernel they look like zombies."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.host.levels import reached

PROGRAM = """
import ctypes, os, sys, threading, time
held = bytearray(int(sys.argv[1]))
for at in range(0, len(held), 4096):
    held[at] = 1
kept = os.memfd_create("kept")
os.write(kept, bytes(int(sys.argv[2])))
def run():
    while True:
        time.sleep(0.01)
threading.Thread(target=run, daemon=True).start()
print("ready", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
"""`pthread_exit` of the first thread ends that thread alone."""


@contextmanager
def leaderless(*, memory: int = 0, files: int = 0) -> Iterator[int]:
    """The pid of one that has so many bytes, and so many more in a file in memory."""
    command = [sys.executable, "-c", PROGRAM, str(memory), str(files)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            stat = Path(f"/proc/{process.pid}/stat")
            reached(lambda: stat.read_bytes().rpartition(b")")[2].split()[0] == b"Z", "its first thread has ended")
            yield process.pid
        finally:
            process.kill()
