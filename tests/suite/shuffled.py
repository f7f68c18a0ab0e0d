"""A pytest plugin: tests in random order, the same for one seed. Modules stay together, as their fixtures want."""

from __future__ import annotations

import os
from collections import defaultdict
from random import Random

import pytest

SEED = "FLINKLIKE_TEST_ORDER"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle the modules, and the tests of each."""
    draw = Random(os.environ[SEED])
    modules: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        modules[item.nodeid.partition("::")[0]].append(item)
    names = sorted(modules)
    draw.shuffle(names)
    for tests in modules.values():
        draw.shuffle(tests)
    items[:] = [item for name in names for item in modules[name]]


def pytest_report_header() -> str:
    """The seed, for a repeat of this order."""
    return f"order: {SEED}={os.environ[SEED]} pytest -p {__name__}"
