"""The digest of a job's code: equal for equal code from any process and place, another one for other code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_flinklike.api.code_digest import code_digest
from airflow_flinklike.api.job_source import build_job

HELPER = "TAX = {'north': 7, 'south': 9}\n\n\ndef taxed(cents, shop):\n    return cents + TAX[shop]\n"
CODE = """
import re
from dataclasses import dataclass

import helper_of_digest
from airflow_flinklike import Pipeline

SHOPS = {"north", "south", "west", "east"}


@dataclass
class Rule:
    least: int

    def holds(self, cents: int) -> bool:
        return cents >= self.least


class Other:
    pass


RULE = Rule(5)


def read(ctx):
    return ctx.spark.readStream.format("rate").load()


def keep(ctx, batch, batch_id):
    pattern = re.compile("[a-z]+")
    kept = [row for row in batch.collect() if row.shop in {"a", "b", "c"} and row.shop in SHOPS and pattern]
    return [helper_of_digest.taxed(row.cents, row.shop) for row in kept if RULE.holds(row.cents)]


def pipeline(day="", interval="1 second"):
    made = Pipeline("orders", params={"day": day})
    made.stream_source("orders", read).stream_sink("kept", keep, trigger=interval)
    return made
"""


def digests(folder: Path, *codes: str, helper: str = HELPER, seed: str = "0", day: str = "") -> list[str]:
    """Those of the pipelines in files, built by one process of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "helper_of_digest.py").write_text(helper)
    files = [folder / f"orders_{number}.py" for number in range(len(codes))]
    for file, code in zip(files, codes, strict=True):
        file.write_text(code)
    build = (
        "from airflow_flinklike.api.code_digest import code_digest\n"
        "from airflow_flinklike.api.job_source import build_job\n"
        f"for file in {[str(file) for file in files]!r}:\n"
        f"    print(code_digest(build_job(file + ':pipeline', {{'day': {day!r}}})))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run([sys.executable, "-c", build], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    (found,) = digests(tmp_path_factory.mktemp("bundle"), CODE)
    return found


@pytest.mark.parametrize("seed", ["1", "2"])
def test_another_process_another_place_and_other_lines_change_nothing(tmp_path: Path, digest: str, seed: str) -> None:
    moved = CODE.replace("SHOPS = {", "\n# a comment\n\n\nSHOPS = {").replace("class Other", "class Another")
    assert set(digests(tmp_path / seed, CODE, moved, seed=seed, day="2026-11-01")) == {digest}


def test_other_code_has_another_digest(tmp_path: Path, digest: str) -> None:
    changes = [
        ('"1 second"', '"2 seconds"'),
        ("self.least", "self.least + 1"),
        ("Rule(5)", "Rule(6)"),
        ('"east"', '"centre"'),
        ('"c"}', '"d"}'),
        ("[a-z]+", "[a-z]*"),
        ('format("rate")', 'format("rate-micro-batch")'),
        ('stream_sink("kept"', 'stream_sink("taken"'),
    ]
    codes = [CODE.replace(before, after) for before, after in changes]
    assert CODE not in codes
    found = digests(tmp_path, *codes)
    assert len({digest, *found}) == 1 + len(changes), found


@pytest.mark.parametrize(("before", "after"), [("cents +", "cents -"), ("'north': 7", "'north': 8")])
def test_a_helper_module_is_part_of_it(tmp_path: Path, digest: str, before: str, after: str) -> None:
    assert digests(tmp_path, CODE, helper=HELPER.replace(before, after)) != [digest]


def test_it_is_short_and_of_scripts_too(tmp_path: Path) -> None:
    from airflow_flinklike import script_job

    found = set()
    for text in ("print(1)", "print(2)"):
        (tmp_path / "etl.py").write_text(text)
        found |= {code_digest(build_job(script_job(str(tmp_path / "etl.py"), args=[day]))) for day in ("1", "2")}
    assert {len(one) for one in found} == {16}
    assert len(found) == 2
