"""From options to the metrics of a process: off, on, without the library, without a port."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError, UnavailableError
from runtime.common.ids import Incarnation
from runtime.config.configuration import Configuration
from runtime.config.loading import load
from runtime.entrypoint.metrics import process_reporting
from runtime.metrics import table
from runtime.metrics.reporting import NO_REPORTING

PROCESS = Incarnation("b" * 32)
ROOT = Path(__file__).resolve().parents[3]
ON = "metrics.reporters=prometheus"

WITHOUT_LIBRARY = """
import sys
sys.modules["prometheus_client"] = None
from runtime.entrypoint.job_manager import main
sys.argv[1:] = ["-D", "metrics.reporters=prometheus"]
sys.exit(main())
"""


def configuration(*dynamic: str) -> Configuration:
    return load(None, environment={}, dynamic=dynamic)


def test_without_a_reporter_there_is_nothing() -> None:
    assert process_reporting("jobmanager", configuration(), PROCESS) is NO_REPORTING


def test_with_one_there_are_counters_and_a_port() -> None:
    pytest.importorskip("prometheus_client", reason="pip install -r requirements/metrics.txt")
    reporting = process_reporting("TaskManager", configuration(ON), PROCESS)
    assert reporting.registry.is_on
    assert reporting.address("elsewhere") == f"127.0.0.1:{reporting.port}"
    assert reporting.exposition is not None
    assert b'flinklike_build_info{component="taskmanager"' in reporting.exposition.render()
    reporting.registry.counter(table.JOBS_ENDED, "FINISHED").inc()
    reporting.close()


def test_a_port_that_is_taken_is_told_with_what_to_do() -> None:
    pytest.importorskip("prometheus_client", reason="pip install -r requirements/metrics.txt")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        options = configuration(ON, f"metrics.prometheus.port={taken.getsockname()[1]}")
        with pytest.raises(UnavailableError, match=r"set metrics\.prometheus\.port to 0 or to a range"):
            process_reporting("jobmanager", options, PROCESS)


def test_without_the_library_a_process_says_what_to_install(tmp_path: Path) -> None:
    environment = {"FLINKLIKE_RUN_DIR": str(tmp_path / "run"), "FLINKLIKE_CONF_DIR": str(tmp_path), "PATH": ""}
    (tmp_path / "config.yaml").touch()
    command = [sys.executable, "-c", WITHOUT_LIBRARY]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1] == (
        "metrics.reporters: prometheus takes the package prometheus-client, which is not installed here: "
        "pip install 'airflow-flinklike[metrics]' (or prometheus-client), or remove the option"
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("metrics.prometheus.port=9250", "metrics.prometheus.port has no effect without metrics.reporters"),
        ("metrics.prometheus.bind-address=0.0.0.0", "bind-address has no effect without metrics.reporters"),
        ("metrics.max-series=500", "metrics.max-series has no effect without metrics.reporters"),
        ("metrics.reporters=graphite", "expected a list of prometheus"),
        ("metrics.reporters=prometheus,prometheus", "prometheus stands there 2 times: name it once"),
        ("metrics.prometheus.port=9270-9250", "a range of ports such as 9250-9270"),
        ("metrics.prometheus.port=0-5", "a range of ports"),
        ("metrics.prometheus.port=70000", "a range of ports"),
        (f"{ON} metrics.prometheus.bind-address=10.0.0.1", "set metrics.prometheus.allow-unauthenticated: true too"),
        (f"{ON} metrics.prometheus.allow-unauthenticated=true", "has no effect on loopback"),
        ("metrics.reporter.prom.port=9249", "use metrics.reporters: prometheus"),
    ],
)
def test_options_that_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        configuration(*text.split())
    assert sentence in " ".join(refused.value.problems)


def test_a_range_of_ports_is_shown_as_it_was_written() -> None:
    assert ("metrics.prometheus.port", "9250-9270") in configuration(ON, "metrics.prometheus.port=9250 - 9270").shown()
