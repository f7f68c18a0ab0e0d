"""Jobs of uploaded programs: which bytes are what, what may be run in them, and the graph of a run.

No code of a program runs here (D-113): a script or a main class is a job of one vertex, which needs no look into it.
The graph of a pipeline is built by a job of its own, in a slot.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import PurePosixPath

from pydantic import JsonValue

from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId
from runtime.common.json_text import parse_json
from runtime.common.printable import printable
from runtime.common.version import VERSION
from runtime.highavailability.records import JarRecord
from runtime.jobgraph.graph import (
    Artifact,
    FunctionReference,
    JarCode,
    JobGraph,
    JobVertex,
    Operator,
    OperatorKind,
    ScriptCode,
    vertex_id_of,
)
from runtime.jobgraph.parsing import parse_job_graph
from runtime.jobgraph.savepoints import SavepointRestoreSettings

ENTRIES_MAX = 50
ENTRIES_BYTES_MAX = 4096
"""Of one program, as they stand in its record: each list of programs has them all."""
NAME_BYTES_MAX = 128
WARNINGS_MAX, WARNING_LENGTH_MAX = 20, 500
_RANDOM = 16
PLANNER = "airflow_flinklike.api.planning:plan"

SCRIPT, JAR = ".py", ".jar"
ZIPS = (".zip", ".whl", ".egg", JAR)
SUFFIXES = (SCRIPT, *ZIPS)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*\Z")
_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
_MANIFEST_MAIN = re.compile(r"^Main-Class:[ \t]*([\w.$]{1,512})[ \t]*$", re.MULTILINE)
_STRATEGY_KEYS = {"pipeline.name", "parallelism.default"}


@dataclass(frozen=True, slots=True)
class RunWish:
    """A run as it was asked for. `entry` "": the program's first one. `conf`: Spark's; `name` "": that of the entry.

    `savepoint`: what its streaming queries are started from.
    """

    entry: str
    args: tuple[str, ...] = ()
    parallelism: int | None = None
    conf: dict[str, str] = field(default_factory=dict)
    name: str = ""
    savepoint: SavepointRestoreSettings | None = None


def check_name(given: str) -> str:
    """The file name of an upload, without its folder. Raises InvalidInputError."""
    name = PurePosixPath(given.replace("\\", "/")).name
    if not name.lower().endswith(SUFFIXES):
        message = f"{name[:80]!r}: upload a file that ends in {', '.join(SUFFIXES)}"
        raise InvalidInputError(message)
    if len(name) > NAME_BYTES_MAX or not _NAME.match(name):
        message = (
            f"{name[:80]!r}: a name has up to {NAME_BYTES_MAX} letters, digits and . _ + -, and begins with a letter "
            "or a digit"
        )
        raise InvalidInputError(message)
    return name


def is_zip(name: str) -> bool:
    """True for a program that is an archive."""
    return name.lower().endswith(ZIPS)


def is_jar(name: str) -> bool:
    """True for a Java or Scala application."""
    return name.lower().endswith(JAR)


def entries_of(name: str, members: list[str], manifest: str = "") -> tuple[str, ...]:
    """What may be run: the script itself, the scripts of an archive (`__main__.py` first), a jar's main class."""
    if not is_zip(name):
        return (name,)
    if is_jar(name):
        return tuple(_MANIFEST_MAIN.findall(manifest.replace("\r", ""))[:1])
    scripts = [one for one in members if one.endswith(SCRIPT) and not one.endswith("/__init__.py")]
    scripts = [one for one in scripts if len(one) <= 256 and one.isprintable() and one != "__init__.py"]
    scripts.sort(key=lambda one: (one != "__main__.py", one.count("/"), one))
    room = accumulate(len(json.dumps(one)) for one in scripts[:ENTRIES_MAX])
    return tuple(one for one, taken in zip(scripts, room, strict=False) if taken <= ENTRIES_BYTES_MAX)


def is_pipeline(entry: str) -> bool:
    """True for `module:pipeline`."""
    return _REFERENCE.match(entry) is not None


def split_args(text: str) -> tuple[str, ...]:
    """`programArgs`, as a shell splits it. Raises InvalidInputError."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        why = str(error)[:1].lower() + str(error)[1:]
        message = (
            f"the arguments (programArgs) cannot be split as a shell splits them: {why}. Close each quote, or write a "
            "backslash in front of it"
        )
        raise InvalidInputError(message) from error


def with_configuration(wish: RunWish, configuration: dict[str, str]) -> RunWish:
    """The wish with `flinkConfiguration`: keys of Spark, `pipeline.name` and `parallelism.default`.

    Raises InvalidInputError for any other key: it would have no effect.
    """
    conf = {key: value for key, value in configuration.items() if key.startswith("spark.")}
    if unknown := sorted(configuration.keys() - conf.keys() - _STRATEGY_KEYS):
        message = (
            f"flinkConfiguration: {', '.join(unknown[:10])[:300]}: a job takes spark.*, pipeline.name and "
            "parallelism.default; set other options in the cluster's configuration"
        )
        raise InvalidInputError(message)
    parallelism = wish.parallelism
    if parallelism is None and (text := configuration.get("parallelism.default")):
        if not (text.isascii() and text.isdigit()) or not 0 < len(text) < 10:
            message = f"parallelism.default: {text[:40]!r} is no positive number"
            raise InvalidInputError(message)
        parallelism = int(text)
    name = configuration.get("pipeline.name", "")
    return replace(wish, parallelism=parallelism, conf={**wish.conf, **conf}, name=name or wish.name)


def application_graph(record: JarRecord, wish: RunWish, program: Artifact, script: Artifact | None) -> JobGraph:
    """The job of a script (`script`: its file; the archive is on its import path) or of a jar's main class.

    Raises InvalidInputError.
    """
    if wish.parallelism not in {None, 1}:
        message = (
            f"parallelism {wish.parallelism}: {wish.entry or record.name} is one task; set Spark's own, for instance "
            "spark.sql.shuffle.partitions in flinkConfiguration"
        )
        raise InvalidInputError(message)
    if wish.savepoint is not None:
        message = (
            f"savepointPath: {wish.entry or record.name} is one task, whose queries the cluster does not know: "
            "name module:pipeline in entryClass, or leave it out"
        )
        raise InvalidInputError(message)
    if is_jar(record.name):
        code: ScriptCode | JarCode = JarCode(jar=program, main_class=wish.entry, args=wish.args)
        kind, default = OperatorKind.JAR, wish.entry.rpartition(".")[2] or record.name
    else:
        code = ScriptCode(script=script or program, args=wish.args)
        kind, default = OperatorKind.SCRIPT, (script or program).name
    files = (program,) if script is not None else ()
    name = (script or program).name
    return _lone(wish.name or default, Operator(name=name, kind=kind, code=code), wish.conf, files)


def planning_graph(wish: RunWish, program: Artifact) -> JobGraph:
    """The job that builds the graph of a pipeline. Its value is that graph as JSON."""
    args: list[JsonValue] = list(wish.args)
    params: dict[str, JsonValue] = {"entry": wish.entry, "args": args, "parallelism": wish.parallelism}
    operator = Operator(name="plan", kind=OperatorKind.FUNCTION, code=FunctionReference(target=PLANNER))
    return _lone(f"plan of {wish.entry}", operator, {}, (program,), params)


def planning_id(record: JarRecord, wish: RunWish, job_id: JobId) -> JobId:
    """The id of the job that plans this run of `job_id`: a repeated request finds the one that it had begun, also for
    another upload of the same bytes.
    """
    return JobId(_digest([*_content(record), wish.entry, wish.args, wish.parallelism, job_id]))


def new_id(random: str, *, namespace: str, name: str, sha256: str) -> str:
    """The id of an upload: random digits, digits that all uploads of the same bytes have, and the name."""
    same = _digest(["id", namespace, name, sha256])
    return f"{random[:_RANDOM]}{same[: 32 - _RANDOM]}_{name}"


def run_of_id(jar_id: str, wish: RunWish) -> str:
    """The request as it is known without the program, which may be deleted: a part of `program_run` (R54).

    By its id, and by what its id has of the bytes.
    """
    return f"{_digest(['id', jar_id, *_asked(wish)])}/{_digest(['upload', jar_id[_RANDOM:], *_asked(wish)])}"


def run_of_content(record: JarRecord, wish: RunWish) -> str:
    """The request as any upload of the same bytes has it. `wish` has its entry. The other part of `program_run`."""
    if wish.parallelism == 1 and not is_pipeline(wish.entry):
        wish = replace(wish, parallelism=None)
    return _digest(["content", *_content(record), *_asked(wish)])


def _content(record: JarRecord) -> tuple[str, str, str]:
    return record.namespace, record.name, record.key.partition("-")[0]


def _asked(wish: RunWish) -> list[JsonValue]:
    savepoint = [] if wish.savepoint is None else [wish.savepoint.model_dump(mode="json")]
    return [wish.entry, list(wish.args), wish.parallelism, wish.name, dict(wish.conf), *savepoint]


def _digest(asked: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]


def read_plan(result: str) -> tuple[JobGraph, tuple[str, ...]]:
    """What the planning job has returned: the graph, and warnings about it. Raises InvalidInputError.

    A task has written it: it is as much input from outside as the body of a submit (R52).
    """
    try:
        value = parse_json(result)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not isinstance(value.get("warnings"), list):
        message = "the job that builds the graph has returned something else: code of the program runs in it"
        raise InvalidInputError(message)
    warnings = [printable(one[:WARNING_LENGTH_MAX]) for one in value["warnings"] if isinstance(one, str)]
    return parse_job_graph(json.dumps(value.get("graph")).encode()), tuple(warnings[:WARNINGS_MAX])


def planned_graph(graph: JobGraph, wish: RunWish, program: Artifact) -> JobGraph:
    """What a pipeline's task has built, with the archive on the import path of its tasks, and with the wish's conf."""
    change = {
        "spark_conf": {**graph.spark_conf, **wish.conf},
        "name": wish.name or graph.name,
        "py_files": (*graph.py_files, program),
        "savepoint": wish.savepoint or graph.savepoint,
    }
    return graph.model_copy(update=change).without_caches()


def _lone(
    name: str,
    operator: Operator,
    conf: dict[str, str],
    files: tuple[Artifact, ...],
    params: dict[str, JsonValue] | None = None,
) -> JobGraph:
    vertex = JobVertex(id=vertex_id_of(operator.name), name=operator.name, operators=(operator,), max_parallelism=1)
    return JobGraph(
        name=name, vertices=(vertex,), py_files=files, spark_conf=conf, params=params or {}, client_version=VERSION
    )
