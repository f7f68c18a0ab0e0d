"""What travels on this host's loopback, as an observer on the network would see it."""

from __future__ import annotations

import socket
import struct
import threading
from dataclasses import dataclass, field
from typing import Self

_ALL_PROTOCOLS = 0x0003
_OUTGOING = 4
_TCP = 6
_SYN = 0x02
_SEEN = 2048
_KEPT = 8192


class SnifferForbiddenError(Exception):
    """This process may not listen to the network (CAP_NET_RAW)."""


@dataclass
class Said:
    """The first bytes that one end of one connection has sent. Ports of IPv4."""

    source: int
    target: int
    begin: bytearray = field(default_factory=bytearray)


class Sniffer:
    """Listens between `__enter__` and `__exit__`."""

    def __init__(self) -> None:
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(_ALL_PROTOCOLS))
        except PermissionError as error:
            raise SnifferForbiddenError(str(error)) from error
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024 * 1024)
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.2)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._listen)
        self._open: dict[tuple[int, int], Said] = {}
        self.said: list[Said] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._socket.close()

    def of(self, ports: set[int]) -> list[Said]:
        """What was said to and by these ports, of connections that began meanwhile."""
        return [one for one in list(self.said) if one.begin and (one.source in ports or one.target in ports)]

    def _listen(self) -> None:
        while not self._is_over.is_set():
            try:
                packet, address = self._socket.recvfrom(_SEEN)
            except TimeoutError:
                continue
            if address[2] != _OUTGOING:  # each packet of the loopback is seen twice
                self._take(packet[14:])

    def _take(self, packet: bytes) -> None:
        if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != _TCP:
            return
        segment = packet[(packet[0] & 15) * 4 :]
        source, target = struct.unpack_from("!HH", segment)
        key = (source, target)
        if segment[13] & _SYN:
            self._open[key] = Said(source, target)
            self.said.append(self._open[key])
            return
        one = self._open.get(key)
        if one is not None and len(one.begin) < _KEPT:
            one.begin += segment[(segment[12] >> 4) * 4 :]
