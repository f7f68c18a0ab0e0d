"""R13: a guard goes on, even if its messages are not read."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from runtime.taskexecutor.guard.guard_main import Guard
from runtime.taskexecutor.guard.life import GuardedLife

LINES = 2000
PATIENCE = 20.0


def test_a_watcher_that_does_not_read_holds_up_nothing(tmp_path: Path) -> None:
    link, watcher = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    guard = Guard([], {}, GuardedLife.begin(tmp_path), link)

    def tell() -> None:
        for _ in range(LINES):
            guard._obey(["state", "1"])

    telling = threading.Thread(target=tell, daemon=True)
    with watcher:
        telling.start()
        telling.join(PATIENCE)
        assert not telling.is_alive(), "it waits for its watcher"
    link.close()
