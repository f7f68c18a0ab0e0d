"""Section [flinklike] of airflow.cfg gives the defaults; a parameter of the task wins; a bad value is one sentence."""

import json
from pathlib import Path
from typing import Any

import airflow
import jsonschema  # type: ignore[import-untyped]  # no stubs installed
import pytest

from airflow_flinklike.airflow_options import OPTIONS, configured
from airflow_flinklike.exceptions import PipelineError
from airflow_flinklike.operators.cancel import FlinklikeCancelOperator
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator
from airflow_flinklike.provider_info import get_provider_info
from airflow_flinklike.sensors.job import FlinklikeJobSensor
from airflow_flinklike.task_instance.task_log import LOG_LIMIT
from airflow_flinklike.task_instance.xcoms import XCOM_LIMIT
from airflow_flinklike.triggers.job import trigger_patience

OTHERS = {
    "poll_interval": "3",
    "inline_timeout": "7.5",
    "orphan_timeout": "none",
    "durable": "False",
    "cancel_on_kill": "f",
    "log_limit": "10",
    "xcom_limit": "none",
    "on_unsupported": "fail",
}


def fields(operator: Any) -> dict[str, Any]:
    return {name: getattr(operator, "durable_job" if name == "durable" else name) for name in OTHERS}


def test_the_section_fits_airflows_schema() -> None:
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    info = get_provider_info()
    jsonschema.validate(info, schema)
    (section,) = info["config"].values()
    for name, option in section["options"].items():
        assert set(option) == {"description", "version_added", "type", "example", "default"}
        assert OPTIONS[name].parse(option["example"]) != OPTIONS[name].parse(option["default"])


def test_the_defaults() -> None:
    operator = FlinklikeSubmitOperator(task_id="t", application="x.py")
    assert fields(operator) == {
        "poll_interval": 10.0,
        "inline_timeout": 20.0,
        "orphan_timeout": 300.0,
        "durable": True,
        "cancel_on_kill": True,
        "log_limit": LOG_LIMIT,
        "xcom_limit": XCOM_LIMIT,
        "on_unsupported": "warn",
    }
    assert (operator.hook.retry_for, operator.hook.first_contact) == (3600.0, 60.0)


def test_the_section_gives_other_defaults_and_the_task_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**OTHERS, "retry_for": "9", "first_contact_timeout": "4"}.items():
        monkeypatch.setenv(f"AIRFLOW__FLINKLIKE__{name.upper()}", value)
    operator = FlinklikeSubmitOperator(task_id="t", application="x.py")
    assert fields(operator) == {
        "poll_interval": 3.0,
        "inline_timeout": 7.5,
        "orphan_timeout": None,
        "durable": False,
        "cancel_on_kill": False,
        "log_limit": 10,
        "xcom_limit": None,
        "on_unsupported": "fail",
    }
    assert (operator.hook.retry_for, operator.hook.first_contact) == (9.0, 4.0)
    assert trigger_patience() == 9.0
    assert FlinklikeCancelOperator(task_id="c", job_id="a").poll_interval == 3.0
    assert FlinklikeJobSensor(task_id="s", job_id="a").xcom_limit is None
    own: dict[str, Any] = {"poll_interval": 1.0, "orphan_timeout": 2.0, "durable": True, "xcom_limit": 5}
    given = fields(FlinklikeSubmitOperator(task_id="t", application="x.py", **own))
    assert {name: given[name] for name in own} == own


def test_none_of_the_task_is_not_the_section(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__FLINKLIKE__ORPHAN_TIMEOUT", "5")
    operator = FlinklikeSubmitOperator(task_id="t", application="x.py", orphan_timeout=None, xcom_limit=None)
    assert (operator.orphan_timeout, operator.xcom_limit) == (None, None)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("poll_interval", "0", "a number above 0"),
        ("poll_interval", "soon", "a number above 0"),
        ("retry_for", "inf", "a number, not below 0"),
        ("retry_for", "", "a number, not below 0"),
        ("log_limit", "1.5", "a number, not below 0, without a fraction"),
        ("orphan_timeout", "-1", "a number, not below 0, or none"),
        ("durable", "yes", "True or False"),
        ("on_unsupported", "ignore", "warn or fail"),
    ],
)
def test_a_bad_value_is_one_sentence(monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: str) -> None:
    monkeypatch.setenv(f"AIRFLOW__FLINKLIKE__{name.upper()}", value)
    with pytest.raises(PipelineError) as caught:
        configured(name)
    assert str(caught.value) == f"[flinklike] {name} in airflow.cfg is {value!r}: expected {expected}"
