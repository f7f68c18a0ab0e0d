"""R52: every reader of bytes from outside, fed with what is hostile; and that the campaign sees what it looks for."""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz import campaign
from tests.fuzz.mutation import Mutator
from tests.fuzz.surface import CORPUS, MIB, Surface
from tests.fuzz.surfaces import SURFACES

ROOT = Path(__file__).resolve().parents[2]
CORPUS_BYTES_MAX = 2 * MIB


def fuzz(*arguments: str, timeout: float | None = None) -> list[dict[str, Any]]:
    """Figures, one of each surface."""
    command = [sys.executable, "-m", "tests.fuzz", "--json", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    assert figures, done.stderr
    return figures


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SURFACES))
def test_smoke(name: str, tmp_path: Path) -> None:
    """The same inputs each time, beginning with those that broke it once."""
    (figures,) = fuzz("--surface", name, "--keep", str(tmp_path))
    assert figures["findings"] == []
    assert figures["inputs"] >= SURFACES[name].smoke_inputs


@pytest.mark.slow
@pytest.mark.extended
@pytest.mark.timeout(4 * 3600)
def test_twenty_minutes_of_cpu(tmp_path: Path) -> None:
    """Other inputs each time; a seed that finds something says so."""
    seed = secrets.randbelow(1 << 31)
    for figures in fuzz("--minutes", "20", "--seed", str(seed), "--keep", str(tmp_path)):
        assert figures["findings"] == [], f"--seed {seed}"


def test_every_corpus_is_that_of_a_surface_and_small() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= {*SURFACES}
    assert sum(path.stat().st_size for path in CORPUS.rglob("*")) < CORPUS_BYTES_MAX


def test_the_same_seed_makes_the_same_inputs() -> None:
    corpus = [b'{"a":[1,2,{"b":"c"}]}', b"\x00\x01\x02"]
    one, other = Mutator(7), Mutator(7)
    assert [one.of(corpus) for _ in range(200)] == [other.of(corpus) for _ in range(200)]
    assert len({Mutator(seed).of(corpus) for seed in range(50)}) > 20


def _raises(data: bytes) -> None:
    raise KeyError(data) if data == b"bad" else ValueError


def _ends(data: bytes) -> None:
    if data == b"bad":
        ctypes.string_at(0)


def _never_returns(data: bytes) -> None:
    while data == b"bad":
        pass


def _takes_memory(data: bytes) -> None:
    _ = bytearray(64 * MIB) if data == b"bad" else None


def _takes_all(data: bytes) -> None:
    _ = bytearray(1 << 42) if data == b"bad" else None


_kept: list[bytearray] = []


def _keeps(data: bytes) -> None:
    _kept.append(bytearray(b"x" * MIB))


@pytest.mark.slow
@pytest.mark.timeout(900)  # a hang is told by processor time, of which a busy machine gives little
@pytest.mark.parametrize(
    ("feed", "kind", "data"),
    [
        (_raises, "crash", b"bad"),
        (_ends, "crash", b"bad"),
        (_never_returns, "hang", b"bad"),
        (_takes_memory, "memory", b"bad"),
        (_takes_all, "memory", b"bad"),
        (_keeps, "memory", b""),
    ],
)
def test_it_is_found_and_the_input_kept(
    feed: Callable[[bytes], object], kind: str, data: bytes, tmp_path: Path
) -> None:
    seconds = 0.05 if kind == "hang" else 0.3  # which each hang takes, twice
    surface = Surface(
        "it", lambda: feed, lambda: [b"good", b"bad"], (ValueError,), cpu_seconds=seconds, growth_bytes=16 * MIB
    )
    figures = campaign.run(surface, seed=1, inputs=60, kept=tmp_path)
    assert [one.kind for one in figures.findings] == [kind]
    assert Path(figures.findings[0].file).read_bytes() == data
