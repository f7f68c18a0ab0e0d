"""Snippets of the documentation run; its commands, options, keys and links exist."""

import builtins
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer.main

from airflow_flinklike.api.explain import explain_graph
from airflow_flinklike.cli.app import app
from airflow_flinklike.exceptions import FlinklikeClientError
from runtime.config.catalog import all_options
from runtime.config.foreign import FOREIGN_KEYS
from runtime.config.loading import load, parse_dynamic
from runtime.entrypoint.control.job_command import parse_job_command
from runtime.rest.app import create_app
from tests.benchmarks.__main__ import BENCHMARKS
from tests.chaos import __main__ as chaos
from tests.chaos import demo
from tests.kit.docs import (
    PAGES,
    ROOT,
    DocCommand,
    Snippet,
    SnippetKind,
    blocks,
    doc_commands,
    doc_snippets,
    headings,
    inline_code,
    run_snippet,
)
from tests.kit.rest.fakes import RestFakes
from tests.kit.rest.server import TOKEN, RestThread

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_KEY = re.compile(r"[a-z][a-z-]*(\.[a-zA-Z][a-zA-Z-]*)+\Z")
_DAEMON_SCRIPTS = {"bin/jobmanager.sh", "bin/historyserver.sh", "bin/start-jobmaster.sh", "bin/taskmanager.sh"}
_VERBS = {"start", "start-foreground", "stop", "stop-all"}


def test_every_page_is_there() -> None:
    names = {page.name for page in PAGES}
    assert names >= {
        "README.md",
        "airflow.md",
        "architecture.md",
        "concepts.md",
        "configuration.md",
        "deployment.md",
        "migrate.md",
        "operations.md",
        "pipeline-api.md",
        "rule-proofs.md",
        "rules.md",
        "script-jobs.md",
        "semantics.md",
        "spark-pitfalls.md",
        "streaming.md",
    }


@pytest.mark.parametrize("snippet", doc_snippets(SnippetKind.PROGRAM), ids=str)
def test_a_program_builds(snippet: Snippet, tmp_path: Path) -> None:
    jobs = run_snippet(snippet, tmp_path)
    assert jobs
    for job in jobs:
        assert explain_graph(job.graph).to_text()


@pytest.mark.parametrize("snippet", doc_snippets(SnippetKind.CLIENT), ids=str)
def test_a_client_submits(snippet: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RestThread() as server:
        monkeypatch.setenv("FLINKLIKE_ADDRESS", server.address)
        monkeypatch.setenv("FLINKLIKE_TOKEN", TOKEN)
        run_snippet(snippet, tmp_path)
        assert server.dispatcher.submitted


@pytest.mark.parametrize("snippet", doc_snippets(SnippetKind.DAG), ids=str)
def test_a_dag_is_python(snippet: Snippet) -> None:
    compile(snippet.text, str(snippet), "exec")


def test_no_block_of_code_escapes() -> None:
    languages = {
        language for page in PAGES for language in re.findall(r"^```(\w*)$", page.read_text(), re.MULTILINE) if language
    }
    assert languages <= {"python", "bash", "yaml", "mermaid"}


@pytest.mark.parametrize("command", doc_commands(), ids=str)
def test_a_command_exists_with_its_options(command: DocCommand) -> None:
    load(None, environment=command.assignments, check=False)
    assert all(name.startswith(("FLINKLIKE_", "PYTHON")) for name in command.assignments)
    head, *arguments = command.words
    if head in {"flinklike", "bin/flinklike"}:
        _check_flinklike(arguments)
    elif head.startswith("bin/"):
        _check_script(head, arguments)
    elif head == "curl":
        _check_path(arguments[-1])
    elif head == "pip":
        assert arguments == ["install", ".[airflow]"]
    elif head == "export":
        name, _, value = arguments[0].partition("=")
        assert name == "AIRFLOW_CONN_FLINKLIKE_DEFAULT"
        assert json.loads(value)["conn_type"] == "flinklike"
    else:
        pytest.fail(f"no check for {head}")


def _check_flinklike(arguments: list[str]) -> None:
    """Parse as the command line does, without executing the command."""
    command: Any = typer.main.get_command(app)
    with command.make_context("flinklike", list(arguments)) as root:
        found = command.get_command(root, arguments[0])
        assert found is not None, arguments
        found.make_context(arguments[0], arguments[1:], parent=root).close()


def _check_script(script: str, arguments: list[str]) -> None:
    assert os.access(ROOT / script, os.X_OK), script
    if script in _DAEMON_SCRIPTS:
        assert arguments[0] in _VERBS or [script, *arguments[:1]] == ["bin/taskmanager.sh", "drain"]
        load(None, environment={}, dynamic=parse_dynamic(arguments[1:]), check=False)
    elif script == "bin/standalone-job.sh":
        assert arguments[0] in _VERBS - {"stop-all"}
        if arguments[0] != "stop":
            load(None, environment={}, dynamic=parse_job_command(arguments[1:], ROOT).cluster_options())
    elif script == "bin/chaos.sh":
        chaos.parse(arguments)
    elif script == "bin/demo-failover.sh":
        demo.parse(arguments)
    elif script in {"bin/quickstart.sh", "bin/test.sh", "bin/bench.sh"}:
        text = (ROOT / script).read_text() + " ".join(BENCHMARKS)
        assert all(argument in text for argument in arguments)
    else:
        load(None, environment={}, dynamic=parse_dynamic(arguments), check=False)


def _check_path(url: str) -> None:
    paths = json.loads(_openapi())["paths"]
    path = re.sub(r"^http://127\.0\.0\.1:8081(/v1)?", "", url)
    assert path in paths or path == "/openapi.json"


def _openapi() -> str:
    import asyncio

    import httpx

    async def get() -> str:
        transport = httpx.ASGITransport(
            create_app(RestFakes().context(), sign_in=None, content_length_max=1 << 20, hosts={"test"})
        )
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return (await client.get("/openapi.json")).text

    return asyncio.run(get())


@pytest.mark.parametrize("script", sorted((ROOT / "bin").glob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_shell(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_a_configuration_loads(block: Snippet, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(block.text)
    load(tmp_path, environment={})


def test_every_option_in_the_text_exists() -> None:
    known = set(all_options())
    areas = {key.partition(".")[0] for key in known}
    unknown = [
        f"{page.name}: {code}"
        for page, text in inline_code()
        for code in [text.partition(":")[0].partition("=")[0].strip()]
        if _KEY.match(code) and code.partition(".")[0] in areas and code not in known
        if not any(code.startswith(key) for key in FOREIGN_KEYS)
    ]
    assert not unknown


def test_every_error_class_in_the_text_exists() -> None:
    import airflow_flinklike.exceptions as ours
    from airflow_flinklike import NonRecoverableError

    named = {code for _, code in inline_code() if re.fullmatch(r"[A-Z]\w+Error", code)} - {NonRecoverableError.__name__}
    named -= {name for name in named if issubclass(getattr(builtins, name, object), Exception)}
    named -= {
        "MemoryLimitExceededError",
        "SparkLostError",
        "SparkEndedError",
        "TemplateProcessLostError",
        "StateNotFoundError",
    }  # in reports
    missing = {name for name in named if not issubclass(getattr(ours, name, object), FlinklikeClientError)}
    assert not missing


def test_links_resolve() -> None:
    broken = []
    for page in PAGES:
        for link in _LINK.findall(page.read_text()):
            if "://" in link:
                continue
            location, _, anchor = link.partition("#")
            target = (page.parent / location).resolve() if location else page
            if not target.exists() or (anchor and anchor not in _anchors(target)):
                broken.append(f"{page.name}: {link}")
    assert not broken


def _anchors(page: Path) -> set[str]:
    if page.suffix == ".py":
        return set(re.findall(r"def (test_\w+)", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(page)}


def test_the_context_is_documented_completely() -> None:
    from runtime.jobgraph.task_context import TaskContext

    members = {name for name in vars(TaskContext) if not name.startswith("_")}
    page = (ROOT / "docs/pipeline-api.md").read_text()
    table = page[page.index("## TaskContext") : page.index("## Code")]
    assert {re.sub(r"\(.*", "", code) for code in re.findall(r"`([^`]+)`", table)} >= members
