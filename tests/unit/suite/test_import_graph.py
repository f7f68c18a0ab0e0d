"""The graph of a small checkout: imports, names of programs, conftests, and rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suite.changed import ROOT
from tests.suite.import_graph import ImportGraph, proofs

FILES = {
    "runtime/a/core.py": '"""A core."""\n',
    "runtime/a/endpoint.py": "from runtime.a import core\n",
    "runtime/a/program.py": "import runtime.a.endpoint\n",
    "runtime/a/message.py": 'SAID = "see docs/page.md"\n',
    "jobmaster_process/__main__.py": "from runtime.a.endpoint import serve\n",
    "bin/start.sh": 'exec python -m runtime.a.program "$@"\n',
    "bin/other.sh": "start.sh\n",
    "tests/kit/cluster.py": 'SCRIPT = "other.sh"\nPROGRAM = "jobmaster_process"\n',
    "tests/process/conftest.py": "from tests.kit.cluster import SCRIPT\n",
    "tests/process/test_it.py": "def test_it() -> None: ...\n",
    "tests/unit/test_core.py": "from runtime.a.core import decide\n",
    "tests/unit/test_page.py": 'PAGE = "docs/page.md"\n',
    "docs/page.md": "# A page\n",
    "docs/rule-proofs.md": "# Proofs\n\n## R1\n\nKept by\n\n- [x](../runtime/a/core.py)\n\nProved by\n\n"
    "- [y](../tests/process/test_it.py#test_it)\n\n## R2\n\nKept by\n\n- [z](../runtime/a/message.py)\n",
}


@pytest.fixture
def graph(tmp_path: Path) -> ImportGraph:
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return ImportGraph.of(tmp_path)


def test_who_imports_a_module_uses_it_and_those_above_are_farther(graph: ImportGraph) -> None:
    found = graph.distances(["runtime/a/core.py"], 2)
    assert (found["runtime/a/core.py"], found["runtime/a/endpoint.py"], found["tests/unit/test_core.py"]) == (0, 1, 1)
    assert found["runtime/a/program.py"] == found["jobmaster_process/__main__.py"] == 2
    assert "bin/start.sh" not in found, "farther than the limit"


def test_a_test_uses_the_processes_that_its_scripts_start(graph: ImportGraph) -> None:
    found = graph.distances(["runtime/a/program.py"], 9)
    way = ["bin/start.sh", "bin/other.sh", "tests/kit/cluster.py", "tests/process/conftest.py"]
    assert [found[path] for path in [*way, "tests/process/test_it.py"]] == [1, 2, 3, 4, 5]
    assert graph.distances(["jobmaster_process/__main__.py"], 9)["tests/kit/cluster.py"] == 1


def test_the_proof_of_a_rule_uses_what_keeps_it(graph: ImportGraph) -> None:
    assert graph.distances(["runtime/a/core.py"], 9)["tests/process/test_it.py"] == 1
    assert "tests/process/test_it.py" not in graph.distances(["runtime/a/message.py"], 9), "the modules of another rule"


def test_the_page_of_proofs_is_read() -> None:
    keeper, proof = "runtime/common/fencing.py", "tests/process/test_job_master_failover.py"
    assert (proof, {keeper}) in list(proofs(ROOT, {keeper, proof})), "docs/rule-proofs.md has another form now"


def test_a_page_that_a_message_names_is_used_by_its_tests_only(graph: ImportGraph) -> None:
    assert graph.distances(["docs/page.md"], 9) == {"docs/page.md": 0, "tests/unit/test_page.py": 1}
