"""Spark's own example scripts, which the pyspark package brings: their arguments, their inputs, and which cannot run.

Started as a program by spark-submit, it runs examples one after the other in one plain Spark: what they print there is
what they have to print on a cluster.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import runpy
import shutil
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SPARK = Path(importlib.util.find_spec("pyspark").origin).parent  # type: ignore[union-attr,arg-type]  # it is installed
SCRIPTS = SPARK / "examples" / "src" / "main" / "python"
DATA = SPARK / "data"
RESOURCES = "examples/src/main/resources"

CONF = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2", "spark.ui.enabled": "false"}
MASTER = "local[2]"

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "als.py": ("20", "30", "5", "2", "2"),
    "kmeans.py": ("data/mllib/kmeans_data.txt", "2", "0.1"),
    "logistic_regression.py": ("points.txt", "3"),
    "mllib/gaussian_mixture_model.py": ("mixture.txt", "2"),
    "mllib/kmeans.py": ("data/mllib/kmeans_data.txt", "2"),
    "mllib/logistic_regression.py": ("data/mllib/sample_svm_data.txt", "3"),
    "mllib/word2vec.py": ("words.txt",),
    "pagerank.py": ("data/mllib/pagerank_data.txt", "3"),
    "sort.py": ("data/graphx/followers.txt",),
    "wordcount.py": ("data/graphx/users.txt",),
}
"""Of those that do nothing without."""

_SOCKET = "reads from a socket for ever"
NOT_RUN: Mapping[str, str] = {
    "avro_inputformat.py": "needs the jar of Spark's Scala examples, which is not in the package",
    "parquet_inputformat.py": "needs the jar of Spark's Scala examples, which is not in the package",
    "mllib/streaming_linear_regression_example.py": "waits for new files for ever",
    "sql/datasource.py": "needs a PostgreSQL server",
    "sql/hive.py": "needs Hive support, which a running JVM cannot be given (see test_warehouse.py)",
    "sql/jdbc.py": "needs a database server and its driver",
    "sql/streaming/structured_blockchain_admission_control.py": "a stream that runs for ever",
    "sql/streaming/structured_kafka_wordcount.py": "needs Kafka",
    "sql/streaming/structured_network_wordcount.py": _SOCKET,
    "sql/streaming/structured_network_wordcount_session_window.py": _SOCKET,
    "sql/streaming/structured_network_wordcount_windowed.py": _SOCKET,
    "sql/streaming/structured_sessionization.py": _SOCKET,
    "streaming/hdfs_wordcount.py": "waits for new files for ever",
    "streaming/network_wordcount.py": _SOCKET,
    "streaming/network_wordjoinsentiments.py": _SOCKET,
    "streaming/recoverable_network_wordcount.py": _SOCKET,
    "streaming/sql_network_wordcount.py": _SOCKET,
    "streaming/stateful_network_wordcount.py": _SOCKET,
}
"""What ends nowhere, or nowhere without something that the package does not bring."""

FAILS: Mapping[str, str] = {
    "ml/cross_validator.py": "with two partitions one of its folds has a single class",
}
"""What fails under spark-submit as well, and has to fail in the same way."""

_TIME = "prints the time of each batch"
_RANDOM = "draws random numbers without a seed"
UNSTABLE: Mapping[str, str] = {
    "logistic_regression.py": _RANDOM,
    "ml/als_example.py": _RANDOM,
    "ml/decision_tree_classification_example.py": _RANDOM,
    "ml/decision_tree_regression_example.py": _RANDOM,
    "ml/fm_classifier_example.py": _RANDOM,
    "ml/fm_regressor_example.py": _RANDOM,
    "ml/gradient_boosted_tree_classifier_example.py": _RANDOM,
    "ml/gradient_boosted_tree_regressor_example.py": _RANDOM,
    "ml/one_vs_rest_example.py": _RANDOM,
    "ml/random_forest_classifier_example.py": _RANDOM,
    "ml/random_forest_regressor_example.py": _RANDOM,
    "mllib/decision_tree_classification_example.py": _RANDOM,
    "mllib/decision_tree_regression_example.py": _RANDOM,
    "mllib/gaussian_mixture_example.py": _RANDOM,
    "mllib/gaussian_mixture_model.py": _RANDOM,
    "mllib/gradient_boosting_classification_example.py": _RANDOM,
    "mllib/gradient_boosting_regression_example.py": _RANDOM,
    "mllib/k_means_example.py": _RANDOM,
    "mllib/kmeans.py": _RANDOM,
    "mllib/latent_dirichlet_allocation_example.py": _RANDOM,
    "mllib/naive_bayes_example.py": _RANDOM,
    "mllib/power_iteration_clustering_example.py": _RANDOM,
    "mllib/random_forest_classification_example.py": _RANDOM,
    "mllib/random_forest_regression_example.py": _RANDOM,
    "mllib/random_rdd_generation.py": _RANDOM,
    "mllib/ranking_metrics_example.py": _RANDOM,
    "mllib/recommendation_example.py": _RANDOM,
    "mllib/sampled_rdds.py": _RANDOM,
    "mllib/stratified_sampling_example.py": _RANDOM,
    "mllib/streaming_k_means_example.py": _TIME,
    "mllib/word2vec.py": _RANDOM,
    "mllib/word2vec_example.py": _RANDOM,
    "pi.py": _RANDOM,
    "sql/arrow.py": _RANDOM,
    "status_api_demo.py": "prints how far a job is each time it looks",
    "streaming/queue_stream.py": _TIME,
}
"""What does not print the same in two runs of plain Spark. These have to end well and to print something."""

UNORDERED = frozenset({"ml/bucketed_random_projection_lsh_example.py", "ml/min_hash_lsh_example.py"})
"""What shows rows of a join as they come."""


def scripts() -> list[str]:
    """All of them, by their names below `SCRIPTS`."""
    found = (path.relative_to(SCRIPTS).as_posix() for path in SCRIPTS.rglob("*.py") if path.name != "__init__.py")
    return sorted(found)


def group_of(name: str) -> str:
    """What runs together, in one plain Spark: a folder, or what of it has the same first letter."""
    folder, _, script = name.rpartition("/")
    return f"{folder}-{script[0]}" if folder.startswith("ml") else folder or "core"


def prepare(directory: Path) -> None:
    """The inputs: the package's data, and what examples read besides."""
    shutil.copytree(DATA, directory / "data")
    (directory / "words.txt").write_text(" ".join(["china", "1", "2", "3"] * 50) + "\n")
    numbers = [[n % 2, *(round(((n * k) % 7) / 7 - 0.5, 3) for k in range(1, 11))] for n in range(20)]
    (directory / "points.txt").write_text("".join(" ".join(map(str, row)) + "\n" for row in numbers))
    mixture = (DATA / "mllib" / "gmm_data.txt").read_text()  # with more than one blank in a row
    (directory / "mixture.txt").write_text("".join(" ".join(row.split()) + "\n" for row in mixture.splitlines()))
    _write_resources(directory / RESOURCES)


def _write_resources(directory: Path) -> None:
    """Files of Spark's source that are not in the package, with other contents of the same form."""
    directory.mkdir(parents=True)
    people: list[dict[str, Any]] = [{"name": "Ada"}, {"name": "Bo", "age": 30}, {"name": "Cy", "age": 19}]
    (directory / "people.json").write_text("".join(json.dumps(row) + "\n" for row in people))
    (directory / "people.txt").write_text("Ada, 29\nBo, 30\nCy, 19\n")


_NUMBER = re.compile(r"-?\d+\.\d+(?:[eE][-+]?\d+)?")
_PLACES = re.compile(r"(/[\w.-]+)+/(tmp)?[\w.-]+|0x[0-9a-f]{6,}|\b[\w.]+_[0-9a-f]{12}\b|[0-9a-f]{8}-[0-9a-f-]{27}")
_PADDING = re.compile(r"(?<=\|) +| +(?=\|)")
_RULES = re.compile(r"-{2,}")
_NOTHING = 1e-9


def normal(text: str) -> list[str]:
    """The lines, without names that are made anew each time, and without the widths of columns.

    Numbers to 4 digits, and none below 1e-9: sums are made in any order.
    """
    lines = (_NUMBER.sub(lambda found: _rounded(float(found.group())), line) for line in text.splitlines())
    named = (_PLACES.sub("<name>", line) for line in lines)
    return [_RULES.sub("-", _PADDING.sub("", line)).rstrip() for line in named]


def _rounded(number: float) -> str:
    return f"{0.0 if abs(number) < _NOTHING else number:.4g}"


# --- in spark-submit --------------------------------------------------------------------------------------------


def main() -> None:
    """Run the examples of a folder that a file lists, in this directory; write what they print beside that file."""
    order, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    inputs = {path.name for path in Path().iterdir()}
    for name in json.loads(order.read_text()):
        path = folder / name
        output = order.parent / f"{name.replace('/', '-')}.stdout"
        sys.argv = [str(path), *ARGUMENTS.get(name, ())]
        sys.path[0] = str(path.parent)
        with _printing_to(output):
            try:
                runpy.run_path(str(path), run_name="__main__")
            except Exception:  # noqa: BLE001 - the boundary of an example: its failure is what is compared
                output.with_suffix(".failure").write_text(traceback.format_exc())
        _stop_spark()
        for left in Path().iterdir():
            if left.name not in inputs:
                shutil.rmtree(left) if left.is_dir() else left.unlink()


@contextmanager
def _printing_to(output: Path) -> Iterator[None]:
    sys.stdout.flush()
    kept, descriptor = os.dup(1), os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
        os.close(descriptor)


def _stop_spark() -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()
    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()


if __name__ == "__main__":
    main()
