"""A TCP proxy in front of a server of the test: what lets a test cut, freeze or kill a connection."""

from __future__ import annotations

import asyncio


class TcpProxy:
    """Forwards to 127.0.0.1:`port`. `kill` resets everything and refuses from then on, as a dead process does."""

    def __init__(self, port: int, *, records: bool = False) -> None:
        """`records`: keep in `said` what was said, in each direction of each connection."""
        self._port = port
        self._records = records
        self.said: list[bytearray] = []
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def start(self) -> str:
        """Listen; the address to dial instead of the server's."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def freeze(self) -> None:
        """Forward nothing in either direction, keep all connections."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Go on."""
        self._flowing.set()

    async def kill(self) -> None:
        """Reset all connections and stop listening. Idempotent."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            _ = await asyncio.wait(self._tasks)
        self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)
            self._writers |= {writer, up_writer}
            async with asyncio.TaskGroup() as group:
                _ = group.create_task(self._forward(reader, up_writer))
                _ = group.create_task(self._forward(up_reader, writer))
            self._writers -= {writer, up_writer}
        except OSError:
            writer.transport.abort()
        except asyncio.CancelledError:
            # asyncio logs a cancelled connection handler as an error; ours is cancelled on purpose.
            return

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = bytearray()
        self.said.append(said)
        try:
            while data := await reader.read(65536):
                if self._records:
                    said += data
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()
