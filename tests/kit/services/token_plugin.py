"""A package of another author that obtains and receives delegation tokens, as an installer leaves it."""

from __future__ import annotations

from pathlib import Path

_MODULE = '''
"""Obtains what a file says, and notes where it is received."""
import time
from pathlib import Path

from runtime.gateways.delegation_tokens import ObtainedTokens


class Provider:
    def __init__(self, options):
        self._source = Path(options["source"])

    def obtain(self):
        return ObtainedTokens({"token": self._source.read_text().strip()}, round(1000 * (time.time() + 3600)))

    def state(self):
        return self._source.stat().st_mtime_ns


class Receiver:
    def __init__(self, options):
        self._seen = Path(options["seen"])

    def receive(self, tokens):
        with self._seen.open("a") as file:
            file.write(f"{sorted(tokens.values)} of {len(tokens.values['token'])}\\n")
'''
_ENTRY_POINTS = """[airflow_flinklike.delegation_token_providers]
demo = demo_tokens:Provider

[airflow_flinklike.delegation_token_receivers]
demo = demo_tokens:Receiver
"""


def install(folder: Path) -> str:
    """What PYTHONPATH has to have, for the processes of a cluster to find it."""
    described = folder / "demo_tokens-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: demo-tokens\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(_ENTRY_POINTS)
    (folder / "demo_tokens.py").write_text(_MODULE)
    return str(folder)
