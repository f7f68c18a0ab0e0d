"""The slot process's end of its socket: frames in and out, from one reading thread and any number of writing ones."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections import deque

from runtime.taskexecutor.slot_protocol.wire import Frame, FrameDecoder, FrameKind

_READ_BYTES = 256 * 1024


class Channel:
    """Blocking by default; `is_cancelled` looks without waiting, so no thread and no signal is needed for a cancel."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._decoder = FrameDecoder()
        self._frames: deque[Frame] = deque()
        self._write_lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._pid = os.getpid()
        self._is_cancelled = False
        self._is_ended = False

    def send(self, kind: FrameKind, payload: bytes = b"") -> None:
        """Write one frame.

        Silent in processes that user code forked from this one, and when the TaskManager does not listen.
        """
        if os.getpid() != self._pid:
            return
        data = Frame(kind, payload).encode()
        with self._write_lock:
            self._send_all(data)

    def try_send(self, kind: FrameKind, payload: bytes) -> None:
        """Write one frame, unless one is being written: this thread may be writing it, below a signal handler."""
        if os.getpid() == self._pid and self._write_lock.acquire(blocking=False):
            try:
                self._send_all(Frame(kind, payload).encode())
            finally:
                self._write_lock.release()

    def _send_all(self, data: bytes) -> None:
        try:
            self._sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self._is_ended = True

    def receive(self) -> Frame | None:
        """Wait for the next frame; None when the TaskManager has closed its end."""
        with self._read_lock:
            while not self._frames and not self._is_ended:
                self._read()
            return self._frames.popleft() if self._frames else None

    def take(self, *kinds: FrameKind) -> Frame | None:
        """Wait for the next frame of one of these kinds, leaving others for `receive`."""
        with self._read_lock:
            while True:
                for frame in self._frames:
                    if frame.kind in kinds:
                        self._frames.remove(frame)
                        return frame
                if self._is_ended:
                    return None
                self._read()

    def take_unless_cancelled(self, kind: FrameKind) -> Frame | None:
        """Wait for the next frame of this kind; None when the task is cancelled, or the TaskManager does not listen."""
        with self._read_lock:
            while not self._is_cancelled:
                for frame in self._frames:
                    if frame.kind is kind:
                        self._frames.remove(frame)
                        return frame
                if self._is_ended:
                    return None
                self._read()
        return None

    def take_if_there(self, kind: FrameKind) -> Frame | None:
        """The next frame of this kind that has arrived, None for none. Never waits."""
        if not self._read_lock.acquire(blocking=False):
            return None
        try:
            while not self._is_ended and select.select([self._sock], [], [], 0)[0]:
                self._read()
            found = next((frame for frame in self._frames if frame.kind is kind), None)
            if found is not None:
                self._frames.remove(found)
            return found
        finally:
            self._read_lock.release()

    @property
    def is_cancelled(self) -> bool:
        """True once the running task is being cancelled. Never waits."""
        if not self._is_cancelled and self._read_lock.acquire(blocking=False):
            try:
                while not self._is_ended and select.select([self._sock], [], [], 0)[0]:
                    self._read()
            finally:
                self._read_lock.release()
        return self._is_cancelled

    def _read(self) -> None:
        try:
            data = self._sock.recv(_READ_BYTES)
        except ConnectionResetError:
            data = b""
        self._is_ended = not data
        for frame in self._decoder.feed(data):
            if frame.kind is FrameKind.CANCEL:
                self._is_cancelled = True
                continue
            if frame.kind is FrameKind.RUN:
                # In the order of arrival: a late cancel of the last task does not count, an early one of this one does.
                self._is_cancelled = False
            self._frames.append(frame)
