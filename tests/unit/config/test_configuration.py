"""Precedence, parsing and the complete list of problems."""

from datetime import timedelta
from pathlib import Path

import pytest

from runtime.config.configuration import Configuration, InvalidConfigurationError, load
from runtime.config.option import parse_duration, parse_list, parse_size, render_duration
from runtime.config.options.cluster import HEARTBEAT_INTERVAL
from runtime.config.options.high_availability import ETCD_ENDPOINTS, ETCD_PASSWORD, HA_TYPE
from runtime.config.options.jobmanager import REST_PORT, SINGLE_JOBMASTER
from runtime.config.options.taskmanager import SLOTS


def load_text(tmp_path: Path, text: str, *dynamic: str, **environment: str) -> Configuration:
    (tmp_path / "config.yaml").write_text(text)
    return load(tmp_path, environment=environment, dynamic=dynamic)


def problems_of(tmp_path: Path, text: str, *dynamic: str, **environment: str) -> tuple[str, ...]:
    with pytest.raises(InvalidConfigurationError) as caught:
        load_text(tmp_path, text, *dynamic, **environment)
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10 s", 10), ("10s", 10), ("500 ms", 0.5), ("5min", 300), ("7 d", 604800), ("PT1M30S", 90), ("1.5 h", 5400)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)
    assert parse_duration(render_duration(parse_duration(text))) == parse_duration(text)


@pytest.mark.parametrize("text", ["", "10", "10 x", "PT", "-1 s", "s"])
def test_bad_durations(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"), [("256 kb", 262144), ("1g", 1 << 30), ("1600m", 1600 << 20), ("17", 17), ("0.5 mb", 524288)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_lists() -> None:
    assert parse_list("[a:1, 'b:2'; c:3]") == ("a:1", "b:2", "c:3")


def test_defaults_without_any_source() -> None:
    configuration = load(None, environment={})
    assert configuration.get(REST_PORT) == 8081
    assert configuration.get(SLOTS) is None
    assert not configuration.is_set(REST_PORT)


def test_nested_and_flat_keys(tmp_path: Path) -> None:
    configuration = load_text(tmp_path, "rest:\n  port: 1\nheartbeat.interval: 1 s\n")
    assert configuration.get(REST_PORT) == 1
    assert configuration.get(HEARTBEAT_INTERVAL) == timedelta(seconds=1)


def test_command_line_beats_environment_beats_file(tmp_path: Path) -> None:
    text = "rest.port: 1\ntaskmanager.numberOfTaskSlots: 2\nheartbeat.interval: 1 s\n"
    environment = {"FLINKLIKE__REST__PORT": "3", "FLINKLIKE__TASKMANAGER__NUMBEROFTASKSLOTS": "4"}
    configuration = load_text(tmp_path, text, "rest.port=5", **environment)
    assert configuration.get(REST_PORT) == 5
    assert configuration.get(SLOTS) == 4


def test_spark_keys_pass_through(tmp_path: Path) -> None:
    configuration = load_text(tmp_path, "spark:\n  sql.shuffle.partitions: 8\n", "spark.master=spark://h:7077")
    assert configuration.spark_conf == {"spark.sql.shuffle.partitions": "8", "spark.master": "spark://h:7077"}


def test_all_problems_are_listed_at_once(tmp_path: Path) -> None:
    problems = problems_of(
        tmp_path,
        "rest.prot: 1\nrest.port: many\nhigh-availability.type: zookeeper\npekko.ask.timeout: 10 s\n",
        "novalue",
        FLINKLIKE__REST__PORTT="1",
    )
    text = "\n".join(problems)
    assert len(problems) == 6
    assert "did you mean rest.port?" in text
    assert "expected a whole number from 0 to 65535" in text
    assert "use etcd and high-availability.etcd.endpoints" in text
    assert "use rpc.timeout" in text
    assert "-D key=value" in text
    assert "did you mean FLINKLIKE__REST__PORT?" in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("jobmanager.jobmaster.single.enable: true", "needs high-availability.type: etcd"),
        ("high-availability.type: etcd", "needs high-availability.etcd.endpoints"),
        ("high-availability.etcd.embedded: true", "needs high-availability.type: etcd"),
        (
            "high-availability.type: etcd\nhigh-availability.etcd.embedded: true\ntaskmanager.host: worker-1",
            "one host only",
        ),
        ("jobmanager.rpc.port: 0", "set a port"),
        ("heartbeat.interval: 9 s", "at least twice"),
        ("spark.master: sc://h", "Spark Connect endpoints are not available yet"),
        ("spark.master: mesos://h", "expected local"),
        ("taskmanager.slot.isolation: jvm", "not available yet"),
        ("exchange.carrier: localCheckpoint", "not available yet"),
        ("rest.port: 1\nrest.port: 2", "given twice"),
        ("rest:\n  port: 1\nrest.port: 2", "once nested and once flat"),
        ("[1, 2]", "must hold keys and values"),
        ("a: [", "cannot be read"),
        ("execution.checkpointing.interval: 1 s", "no streaming jobs yet"),
    ],
)
def test_one_problem(tmp_path: Path, text: str, says: str) -> None:
    (problem,) = problems_of(tmp_path, text)
    assert says in problem


def test_missing_file_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigurationError, match="FLINKLIKE_CONF_DIR"):
        load(tmp_path, environment={})


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    text = (
        "high-availability.type: etcd\nhigh-availability.etcd.endpoints: h:1\nspark.my.password: hush\n"
        "high-availability.etcd.username: u\nhigh-availability.etcd.password: hush\n"
    )
    configuration = load_text(tmp_path, text)
    assert configuration.get(ETCD_PASSWORD) == "hush"
    assert "hush" not in repr(configuration.get(ETCD_PASSWORD))
    assert "hush" not in str(configuration.shown())


def test_shipped_configuration_is_valid() -> None:
    configuration = load(Path(__file__).resolve().parents[3] / "conf", environment={})
    assert configuration.get(HA_TYPE) == "etcd"
    assert configuration.get(SINGLE_JOBMASTER)
    assert configuration.get(ETCD_ENDPOINTS) == ()
