"""Start a program as another user, from a process that has threads.

`subprocess` forks for that, and what gRPC has registered for forks may end such a child before it runs the program. So
the program begins as this user's, in an interpreter that loads nothing, gives up all rights, and becomes the wanted
one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from runtime.system.linux import KEYCTL_CALL, KEYCTL_JOIN_SESSION_KEYRING

_BECOME = (
    "import ctypes, os, sys\n"
    "uid, gid, umask = map(int, sys.argv[1:4])\n"
    "os.setgroups([int(one) for one in sys.argv[4].split(',') if one])\n"
    "os.setresgid(gid, gid, gid)\n"
    "os.setresuid(uid, uid, uid)\n"
    f"ctypes.CDLL(None).syscall({KEYCTL_CALL}, {KEYCTL_JOIN_SESSION_KEYRING}, None)\n"  # R50: whose keys they are
    "if umask >= 0: os.umask(umask)\n"
    "os.chdir('/')\n"
    "os.execv(sys.argv[5], sys.argv[5:])"
)


def command_as(uid: int, gid: int, command: Iterable[str], *, groups: Iterable[int] = (), umask: int = -1) -> list[str]:
    """The command line that runs `command` as that user, in `/`; its program is an absolute path. Takes root."""
    numbers = (str(uid), str(gid), str(umask), ",".join(map(str, groups)))
    return [sys.executable, "-I", "-S", "-c", _BECOME, *numbers, *command]
