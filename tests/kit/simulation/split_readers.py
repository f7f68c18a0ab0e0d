"""The user code of sources that take their splits on demand (R12), and what they tell of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from runtime.jobgraph.splits import NO_SPLIT


def splits_read(splits: Iterable[int]) -> str:
    """What a subtask tells that has read these splits, in the form of what tells rows."""
    return json.dumps({"rows": sorted(["split", split, 0, 1] for split in splits)})


class OnDemandReader:
    """The user code of one attempt: it asks for a split, reads it for a while, and asks for the next one."""

    def __init__(self, ask: Callable[[int], None], read: Callable[[], None], finish: Callable[[], None]) -> None:
        """`ask`: for the next split, having had so many. `read`: for a while, then call `go_on`."""
        self.splits: list[int] = []
        self._ask = ask
        self._read = read
        self._finish = finish

    def go_on(self) -> None:
        """The last one is read, or it begins."""
        self._ask(len(self.splits))

    def give(self, split: int) -> None:
        """The TaskManager has an answer."""
        if split == NO_SPLIT:
            self._finish()
        else:
            self.splits.append(split)
            self._read()
