"""R39, R41: a flood on the ports of a process leaves it half of its descriptors."""

from __future__ import annotations

import subprocess
import sys

import pytest

_ALL_CONNECTIONS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
from runtime.common.ids import Incarnation
from runtime.rest.connections.limited_connections import connections_max
from runtime.rpc.settings import RpcSettings
print(connections_max() + RpcSettings(Incarnation("0" * 32), None).connections_max)
"""


@pytest.mark.parametrize("descriptors", [256, 1024, 4096])
def test_all_ports_together_take_half_of_them(descriptors: int) -> None:
    command = [sys.executable, "-c", _ALL_CONNECTIONS, str(descriptors)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert 0 < int(done.stdout) <= descriptors // 2
