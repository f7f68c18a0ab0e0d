"""`python -m tests.chaos.client FOLDER SEED CLIENTS KINDS URL...`: the clients of chaos, within a container.

They submit jobs until there is a file `over` in the folder, then see all of them through, ask for every end once more,
and print what they were told.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.chaos.ledger import Ledger
from tests.chaos.load import Load
from tests.chaos.run import END_TIMEOUT

LEDGER, OVER = "ledger", "over"
TOKEN = Path("/var/lib/flinklike-shared/secrets/token")
_TICK = 0.2


async def run(folder: Path, seed: int, clients: int, kinds: list[str], urls: list[str], token: str) -> Load:
    """From the first job to the last check."""
    path = folder / LEDGER
    ledger = Ledger(str(path))
    load = Load(urls, token, ledger, path, folder / "outputs", kinds, say=_say)
    is_over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(load.run_client(seed, number, is_over)) for number in range(clients)]
        while not (folder / OVER).exists():
            await asyncio.sleep(_TICK)
            _complain(running)
        is_over.set()
        _, late = await asyncio.wait(running, timeout=END_TIMEOUT)
        for one in late:
            one.cancel()
        await load.await_ends(1.0 if late else END_TIMEOUT)
    await load.check()
    ledger.close()
    return load


def _complain(running: list[asyncio.Task[None]]) -> None:
    """A client that has failed ends the run at once."""
    for one in running:
        if one.done():
            one.result()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> None:
    """Run, and print the errors as JSON in the last line."""
    folder, seed, clients, kinds, *urls = arguments
    Path(folder).mkdir(parents=True, exist_ok=True)
    token = TOKEN.read_text(encoding="utf-8").strip()
    load = asyncio.run(run(Path(folder), int(seed), int(clients), kinds.split(","), urls, token))
    _say(json.dumps({"acknowledged": load.acknowledged, "errors": load.errors}))


if __name__ == "__main__":
    main(sys.argv[1:])
