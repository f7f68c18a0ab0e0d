"""Precedence, parsing and the complete list of problems."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError
from runtime.config.catalog import all_options
from runtime.config.configuration import Configuration
from runtime.config.foreign import FOREIGN_KEYS
from runtime.config.loading import InvalidConfigurationError, load, parse_dynamic
from runtime.config.option import parse_duration, parse_list, parse_size, render, render_duration
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
    configuration = load_text(tmp_path, "spark:\n  sql.shuffle.partitions: 8\n", "spark.master=local[3]")
    assert configuration.spark_conf == {"spark.sql.shuffle.partitions": "8", "spark.master": "local[3]"}


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


OWN_JVMS = "taskmanager: {slot.isolation: jvm, "
SPARK_CLUSTER = "spark.master: spark://a:7077,b:7077\ntaskmanager.spark: {"
EXTERNAL = "high-availability.type: etcd\nhigh-availability.etcd.endpoints: etcd-1:2379\n"


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
        (
            f"{EXTERNAL}",
            "every client that writes there can run code in this cluster: set high-availability.etcd.tls.ca",
        ),
        (f"{EXTERNAL}high-availability.etcd.tls.ca: /ca.pem", "etcd without authentication"),
        (
            f"{EXTERNAL}high-availability.etcd: {{username: u, password: p, allow-unauthenticated: true}}",
            "allow-unauthenticated: true has no effect beside credentials",
        ),
        (
            "high-availability: {type: etcd, etcd: {embedded: true, allow-unauthenticated: true}}",
            "allow-unauthenticated has no effect with high-availability.etcd.embedded: true",
        ),
        ("jobmanager.rpc.port: 0", "set a port"),
        ("heartbeat.interval: 9 s", "at least twice"),
        ("taskmanager.isolation-timeout: 5 s", "at least three times heartbeat.interval"),
        ("spark.driver.host: a", "spark.driver.host: use taskmanager.host"),
        ("spark.master: mesos://h", "expected local"),
        ("spark.master: localhost", "expected local"),
        ("spark.master: local[*]x", "expected local"),
        ("spark.master: local[0]", "expected local"),
        ("spark.master: spark://", "expected local"),
        ("spark.master: spark://h:7077", "needs taskmanager.spark.secret-file"),
        (SPARK_CLUSTER + "secret-file: /s, allow-unauthenticated: true}", "contradict each other"),
        (SPARK_CLUSTER + "allow-unauthenticated: true, network-encryption: true}", "its keys are made from the secret"),
        ("taskmanager.spark.secret-file: /s", "is for spark.master spark://"),
        ("taskmanager.spark.allow-unauthenticated: true", "is for spark.master spark://"),
        ("heartbeat.interval: 99999999999999 d", "expected at most 3650 d"),
        ("heartbeat.interval: 4000 d", "expected at most 3650 d"),
        (f"blob.max-size: {'9' * 400}", "expected a size that a disk can have"),
        ("heartbeat.interval: 0 s", "expected at least 1 ms"),
        ("heartbeat.timeout: 0 s", "expected at least 1 ms"),
        ("rpc.timeout: 0 s", "expected at least 1 ms"),
        ("blob.max-size: 0", "expected at least 1 kb"),
        ("rest.server.max-content-length: 0", "expected at least 1 kb"),
        ("rpc.max-message-size: 1", "expected at least 4 mb"),
        ("taskmanager.memory.task.size: 0", "expected at least 64 mb"),
        ("taskmanager.memory.spark.size: 0", "expected at least 512 mb"),
        ("env.log.max: 1", "expected a whole number from 2 to 1000"),
        ("high-availability.cluster-id: ''", "expected a name"),
        ("high-availability.cluster-id: a/b", "expected a name"),
        ("taskmanager.resource-id: a/b", "expected a name"),
        ("rest.address: ''", "expected a host name or an address"),
        ("rest.address: 127.0.0.1:8081", "expected a host name or an address"),
        ("rest.address: http://host", "expected a host name or an address"),
        ("high-availability.etcd.endpoints: etcd-1", "expected host:port of each, not 'etcd-1'"),
        ("high-availability.etcd.endpoints: 'a:1, b:70000'", "expected host:port of each, not 'b:70000'"),
        ("high-availability.etcd.endpoints: http://a:1", "expected host:port of each"),
        ("taskmanager.slot.isolation: thread", "expected one of process, jvm"),
        ("spark.flinklike.isolation: jvm", "is for jobs: set taskmanager.slot.isolation: jvm instead"),
        (OWN_JVMS + "spark.enabled: false}", "is for TaskManagers with Spark"),
        (OWN_JVMS + "memory.spark.total: 0}", "leaves no room for any: raise it"),
        (OWN_JVMS + "memory.spark.total: 1 gb}", "for all driver JVMs of a TaskManager, and one takes 1536 mb"),
        (OWN_JVMS + "spark.warehouse: /w}", "one JVM at a time can use that catalog"),
        ("exchange.carrier: parquet", "is no option any more: the rows of an edge are always Parquet files"),
        ("rest.port: 1\nrest.port: 2", "given twice"),
        ("rest:\n  port: 1\nrest.port: 2", "once nested and once flat"),
        ("[1, 2]", "must hold keys and values"),
        ("a: [", "cannot be read"),
        ("? [a]\n: b", "a key must be text (line 1)"),
        ("a: &x\n  b: *x", "cannot be read"),
    ],
)
def test_one_problem(tmp_path: Path, text: str, says: str) -> None:
    (problem,) = problems_of(tmp_path, text)
    assert says in problem


@pytest.mark.parametrize(
    "text",
    [
        "rest.address: '::1'",
        "rest.address: worker-1.example_net.org",
        "spark.master: local",
        "spark.master: 'local[2, 3]'",
        SPARK_CLUSTER + "secret-file: /s, network-encryption: true}",
        SPARK_CLUSTER + "allow-unauthenticated: true}",
        "taskmanager.spark.network-encryption: true",
        "spark.master: spark://h:7077\ntaskmanager.spark.enabled: false",
        "high-availability: {type: etcd, etcd: {endpoints: ['[::1]:2379', 'etcd-1:1'], allow-unauthenticated: true}}",
        "task.cancellation.timeout: 0 s",
        OWN_JVMS + "memory.spark.total: 2 gb}",
        "taskmanager:\nspark:\nrest:\n  server:\n",
    ],
)
def test_unusual_but_right(tmp_path: Path, text: str) -> None:
    load_text(tmp_path, text)


def test_defaults_are_values_that_would_be_accepted() -> None:
    for option in all_options().values():
        if option.default not in (None, ()):
            assert option.parse(render(option.default)) == option.default, option.key


FLINK_KEYS = [key for key in (Path(__file__).parent / "flink_keys.txt").read_text().split() if key not in all_options()]


@pytest.mark.parametrize("key", FLINK_KEYS)
def test_flinks_keys_are_refused_with_what_to_do_and_never_with_a_guess(tmp_path: Path, key: str) -> None:
    variable = "FLINKLIKE__" + key.upper().replace(".", "__").replace("-", "_")
    in_environment, in_file = problems_of(tmp_path, f"{key}: x", **{variable: "x"})
    advice = in_file.partition(" is Flink's, but not available here: ")[2]
    assert advice
    assert in_environment == f"environment variable {variable} is Flink's, but not available here: {advice}"


OPTION_LIKE = re.compile(r"\b(?:[a-z]+[a-z-]*\.)+[a-zA-Z][a-zA-Z-]*")


def test_advice_names_options_that_exist_and_covers_no_area_of_ours() -> None:
    for area, advice in FOREIGN_KEYS.items():
        named = [
            name for name in OPTION_LIKE.findall(advice) if not name.startswith(("bin.", "stop-cluster.", "spark."))
        ]
        assert set(named) <= set(all_options()), area
        assert area not in {key.lower() for key in all_options()}


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("rest.prot", "rest.port"),
        ("rest.Port", "rest.port"),
        ("taskmanager.memory.task.siz", "taskmanager.memory.task.size"),
        ("taskmanager.numberOfTaskSlot", "taskmanager.numberOfTaskSlots"),
        ("web.refreshinterval", "web.refresh-interval"),
        ("etcd.endpoints", "high-availability.etcd.endpoints"),
        ("cluster-id", "high-availability.cluster-id"),
        ("resourcemanager.profils.gpu.taskmanager.labels", "resourcemanager.profiles.<name>.*"),
        ("slotmanager.queues.etl.weight", "slotmanager.queue.<name>.*"),
    ],
)
def test_a_typing_error_is_told_from_a_key_of_flink(tmp_path: Path, key: str, meant: str) -> None:
    assert problems_of(tmp_path, f"{key}: 1")[0].endswith(f"is no option; did you mean {meant}?")


def test_what_a_scheduler_chooses_has_no_options_where_it_chooses_nothing(tmp_path: Path) -> None:
    area = "execution.batch.adaptive"
    own = f"{area}.skewed-factor: 3\n{area}.auto-parallelism.enabled: false\nparallelism.default: 2\n"
    factor, enabled = sorted(problems_of(tmp_path, f"jobmanager.scheduler: Default\n{own}"), reverse=True)
    assert factor == f"{area}.skewed-factor has no effect with jobmanager.scheduler: Default: remove it"
    assert enabled == f"{area}.auto-parallelism.enabled has no effect with jobmanager.scheduler: Default: remove it"
    load_text(tmp_path, own)  # a job may choose for itself


@pytest.mark.parametrize(
    ("key", "named"),
    [
        ("execution.batch.speculative.block-slow-node", "execution.batch.speculative.block-slow-node-duration"),
        ("jobmanager.adaptive-batch-scheduler.max-parallelism", "auto-parallelism.max-parallelism"),
        ("jobmanager.adaptive-batch-scheduler.speculative.enabled", "execution.batch.speculative.enabled"),
        ("table.optimizer.skewed-join-optimization.strategy", "splittable=True"),
        ("table.optimizer.adaptive-broadcast-join.strategy", "broadcast_below"),
        ("execution.savepoint.path", "--from-savepoint"),
        ("kubernetes.cluster-id", "conf/kubernetes"),
    ],
)
def test_what_there_is_by_another_name_is_named(tmp_path: Path, key: str, named: str) -> None:
    (problem,) = problems_of(tmp_path, f"{key}: x")
    assert named in problem.partition(" is Flink's, but not available here: ")[2]


def test_what_is_like_nothing_gets_no_guess(tmp_path: Path) -> None:
    in_environment, in_file = problems_of(tmp_path, "gizmo.size: 1", FLINKLIKE__SPARK__SQL__X="1")
    assert in_file.endswith("is no option: conf/REFERENCE.md lists them")
    assert in_environment.endswith("cannot be read: Spark's keys have capitals, so set them in config.yaml or with -D")


def test_dynamic_options() -> None:
    assert parse_dynamic(["-D", "a=b", "-Dc=d"]) == ["a=b", "c=d"]
    for wrong in (["-D"], ["--help"], ["-D", "a=b", "c=d"]):
        with pytest.raises(InvalidInputError, match="only -D key=value may follow"):
            parse_dynamic(wrong)


def test_a_secret_is_no_argument() -> None:
    """R41: every user of the host can read those of its processes."""
    for text in ("-Dhigh-availability.etcd.password=hush", "-D high-availability.etcd.password =hush"):
        arguments = text.split(" ", 1)
        with pytest.raises(InvalidInputError, match=r"FLINKLIKE__HIGH_AVAILABILITY__ETCD__PASSWORD") as caught:
            parse_dynamic(arguments)
        assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "is_secret"),
    [
        ("spark.hadoop.fs.s3a.secret.key", True),
        ("spark.hadoop.fs.s3a.endpoint", False),
        ("security.delegation.token.provider.vault.password", True),
        ("security.delegation.token.provider.vault.path", False),
    ],
)
def test_a_secret_of_spark_or_of_a_provider_is_none_either(key: str, is_secret: bool) -> None:
    if not is_secret:
        assert parse_dynamic([f"-D{key}=x"]) == [f"{key}=x"]
        return
    with pytest.raises(InvalidInputError, match=f"-D {key} shows a secret to every user of this host") as caught:
        parse_dynamic([f"-D{key}=hush"])
    assert "hush" not in str(caught.value)


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


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.hadoop.fs.azure.account.key.store.dfs.core.windows.net", "hush"),
        ("spark.hadoop.fs.s3a.access.key", "hush"),
        ("spark.kafka.sasl.jaas.config", "hush"),
        ("spark.hadoop.x.http-headers", "hush"),
        ("spark.ssl.keyPassword", "hush"),
        ("spark.driver.extraJavaOptions", "-Dstore.password=hush"),
    ],
)
def test_secrets_of_spark_are_not_shown(key: str, value: str) -> None:
    shown = load(None, environment={}, dynamic=[f"{key}={value}", "spark.sql.shuffle.partitions=8"]).shown()
    assert shown == sorted([(key, "******"), ("spark.sql.shuffle.partitions", "8")])


def test_shipped_configuration_is_valid() -> None:
    configuration = load(Path(__file__).resolve().parents[3] / "conf", environment={})
    assert configuration.get(HA_TYPE) == "etcd"
    assert configuration.get(SINGLE_JOBMASTER)
    assert configuration.get(ETCD_ENDPOINTS) == ()


@pytest.mark.parametrize("text", ["", "[]", " , "])
def test_a_history_server_without_a_directory_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="expected the URL of one directory at least; remove the option"):
        load(None, environment={}, dynamic=[f"historyserver.archive.fs.dir={text}"])


def test_a_refused_url_is_shown_without_its_password(tmp_path: Path) -> None:
    url = "http://name:pass@word@collector/v1/traces"
    (problem,) = problems_of(tmp_path, f"traces.reporter.otlp.exporter.endpoint: {url}")
    assert "http" in problem
    assert "word" not in problem
