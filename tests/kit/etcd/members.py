"""EtcdMembers: an etcd cluster of three on this host, whose members can be killed and started again."""

from __future__ import annotations

import json
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from runtime.entrypoint.control.embedded_certificates import ensure_certificates
from tests.kit.etcd.server import EtcdProcess

COUNT = 3


class EtcdMembers:
    """Three members. `start` returns when all serve."""

    def __init__(self, directory: Path) -> None:
        peers = {f"m{number}": f"https://127.0.0.1:{port}" for number, port in enumerate(_free_ports(COUNT))}
        everybody = ",".join(f"{name}={peer}" for name, peer in peers.items())
        self.members = [
            EtcdProcess(
                directory / name,
                # etcd takes the last value of a flag.
                extra_arguments=(
                    f"--name={name}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}",
                    f"--initial-cluster={everybody}",
                ),
            )
            for name, peer in peers.items()
        ]

    def start(self) -> None:
        """Start all, in parallel: a member is healthy only with a second one. They share a CA to trust each other."""
        first, *others = [member.tls for member in self.members]
        ensure_certificates(first, datetime.now(UTC))
        for other in others:
            shutil.copytree(first.directory, other.directory)
        with ThreadPoolExecutor(COUNT) as pool:
            _ = [starting.result() for starting in [pool.submit(member.start) for member in self.members]]

    def stop(self) -> None:
        """End all of them."""
        for member in self.members:
            member.stop()

    def options(self) -> dict[str, str]:
        """Options of a cluster that uses these members as its etcd."""
        return self.members[0].options(*(member.endpoint for member in self.members))

    def leader(self) -> EtcdProcess:
        """The member that leads now."""
        return next(member for member in self.members if _leads(member))


def _leads(member: EtcdProcess) -> bool:
    (answer,) = json.loads(member.ctl("endpoint", "status", "--write-out=json"))
    return bool(answer["Status"]["leader"] == answer["Status"]["header"]["member_id"])


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
