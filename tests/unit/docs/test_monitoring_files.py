"""Alerts, dashboard and documentation name metrics and labels that exist; promtool accepts and tests the rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from runtime.metrics.metric import MetricKind
from runtime.metrics.table import TABLE
from tests.kit.docs import ROOT

RULES = ROOT / "conf/prometheus/alerts.yml"
FILES = [
    RULES,
    ROOT / "conf/prometheus/alerts_test.yml",
    ROOT / "conf/grafana/flinklike.json",
    ROOT / "docs/metrics.md",
]
SERIES = {metric.name: metric for metric in TABLE if metric.kind is not MetricKind.HISTOGRAM} | {
    f"{metric.name}{suffix}": metric
    for metric in TABLE
    if metric.kind is MetricKind.HISTOGRAM
    for suffix in ("_bucket", "_sum", "_count")
}
OF_TARGETS = {"job", "instance", "process"}
_SELECTOR = re.compile(r"\b(flinklike_[a-z_]+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')
_KINDS = {MetricKind.COUNTER: ("rate(", "increase("), MetricKind.HISTOGRAM: ("rate(",)}


def expressions() -> Iterator[str]:
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]
    for panel in json.loads((ROOT / "conf/grafana/flinklike.json").read_text(encoding="utf-8"))["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_every_metric_exists(file: Path) -> None:
    named = set(re.findall(r"\bflinklike_[a-z_]+[a-z]\b", file.read_text(encoding="utf-8")))
    known = {*SERIES, *(metric.name for metric in TABLE), "flinklike_process"}  # the last with a star behind it
    assert named
    assert named <= known


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_every_label_and_value_exists(expression: str) -> None:
    for name, matchers in _SELECTOR.findall(expression):
        metric = SERIES[name]
        labels = {label.name: label.values for label in metric.labels}
        for label, value in _MATCHER.findall(matchers):
            assert label in {*labels, *OF_TARGETS}
            if closed := labels.get(label):
                assert set(value.split("|")) <= set(closed)
        for functions in (_KINDS.get(metric.kind),):
            assert functions is None or any(function in expression for function in functions), "a counter is a rate"


def test_every_alert_is_documented_and_says_what_to_do() -> None:
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    rules = [one for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for one in group["rules"]]
    assert {rule["alert"] for rule in rules} == set(re.findall(r"\bFlinklike[A-Z]\w+", page))
    assert all(set(rule["annotations"]) == {"summary", "action"} for rule in rules)
    assert all(rule["labels"]["severity"] in {"critical", "warning", "info"} for rule in rules)


def test_the_configuration_finds_the_cluster_by_rest() -> None:
    found = yaml.safe_load((ROOT / "conf/prometheus/prometheus.yml").read_text(encoding="utf-8"))
    (scrape,) = found["scrape_configs"]
    assert scrape["job_name"] == "flinklike"
    (discovery,) = scrape["http_sd_configs"]
    assert discovery["url"].endswith("/metrics/targets")
    assert set(discovery["authorization"]) == {"type", "credentials_file"}, "no token in the file itself"


@pytest.mark.slow
@pytest.mark.extended
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is not installed")
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts_test.yml"),
        ("check", "config", "--syntax-only", "prometheus.yml"),
    ],
    ids=" ".join,
)
def test_promtool_accepts_it(arguments: tuple[str, ...]) -> None:
    promtool = shutil.which("promtool")
    assert promtool is not None
    done = subprocess.run([promtool, *arguments], cwd=RULES.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
