"""Makes `tests.kit` importable wherever pytest is started, and has what all folders share."""

import gc
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.kit.fixtures import built_archive, class_archive

__all__ = ["built_archive", "class_archive"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's & does that, and every child would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.set_threshold(100_000, 20, 50)  # thousands of tests make a heap that is slow to look through and hardly ever garbage


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
