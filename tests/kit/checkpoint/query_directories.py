"""A query's directory with offsets, commits, a source's log and state, and savepoints made of it."""

from __future__ import annotations

import json
from pathlib import Path

from runtime.checkpoint.savepoint.committed_files import last_entry, log_files
from runtime.checkpoint.savepoint.file_tree import FileTree
from runtime.checkpoint.savepoint.query_copy import copy_query
from runtime.checkpoint.savepoint.savepoint_files import finish_savepoint, local_path, part_path, savepoint_name
from runtime.checkpoint.savepoint.savepoint_form import Savepoint, SavepointQuery


def query_directory(path: Path, *, batches: int, with_state: bool = True, query_id: str = "query-1") -> Path:
    """A query of a file source that has committed `batches` batches, and has begun another one."""
    write(path / "metadata", json.dumps({"id": query_id}))
    for batch in range(batches + 1):
        told = json.dumps({"batchWatermarkMs": batch * 1000, "batchTimestampMs": 1, "conf": {}})
        write(path / "offsets" / str(batch), f"v1\n{told}\n" + json.dumps({"logOffset": batch}))
        write(path / "sources" / "0" / str(batch), f'v1\n{{"path":"in/{batch}","timestamp":1,"batchId":{batch}}}')
        if with_state:
            for partition in range(2):
                write(path / "state" / "0" / str(partition) / f"{batch + 1}.delta", f"state {batch} {partition}")
        if batch < batches:
            write(path / "commits" / str(batch), "v1\n" + json.dumps({"nextBatchWatermarkMs": (batch + 1) * 1000}))
    if with_state:
        operator = {
            "operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"},
            "stateStoreInfo": [{"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 2}],
        }
        write(path / "state" / "0" / "_metadata" / "metadata", "v1\n" + json.dumps(operator))
        write(path / "state" / "0" / "0" / "_metadata" / "schema", "schema")
    return path


def sink_directory(path: Path, *, batches: int) -> Path:
    """A table with one file for each of `batches` batches, and Spark's log of them, compact after each third."""
    for batch in range(batches):
        write(path / f"part-{batch}.json", f"row {batch}")
        is_compact = batch % 3 == 2
        lines = [_added(path, one) for one in (range(batch + 1) if is_compact else [batch])]
        name = f"{batch}.compact" if is_compact else str(batch)
        write(path / "_spark_metadata" / name, "\n".join(["v1", *lines]))
    return path


def _added(path: Path, batch: int) -> str:
    return json.dumps({"path": f"file://{path}/part-{batch}.json", "size": 5, "isDir": False, "action": "add"})


def saved(
    directory: Path,
    query: Path,
    *,
    batch_id: int,
    sink: Path | None = None,
    uid: str = "sink",
    name: str = "a",
    job_id: str = "0123456789" * 3,
    sources: tuple[str, ...] = (),
) -> Path:
    """A savepoint of one query, in a directory of savepoints."""
    part = part_path(directory, savepoint_name("0123456789" * 3, name * 12))
    snapshot = copy_query(query, part / uid / "0", batch_id, sink)
    return finish_savepoint(
        part,
        Savepoint(
            job_id=job_id,
            job_name="orders",
            checkpoint_id=7,
            trigger_millis=1_700_000_000_000,
            software_version="1",
            queries=(SavepointQuery(uid=uid, subtask_index=0, parallelism=1, snapshot=snapshot, sources=sources),),
        ),
    )


def table_files(table: Path) -> list[Path]:
    """Files of a table, as Spark's log of the sink names them."""
    log = FileTree(table / "_spark_metadata")
    names = log_files(log.listing().files, last_entry(log.listing().files), must_reach=False)
    lines = [line for name in names for line in log.read(name, 1 << 24).decode().splitlines()[1:]]
    return [local_path(json.loads(line)["path"]) for line in lines]


def write(path: Path, text: str) -> None:
    """A file that is whole when it has its name, as Spark writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / f".{path.name}.tmp").write_text(text)
    (path.parent / f".{path.name}.tmp").rename(path)
