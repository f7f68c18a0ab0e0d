"""The record of containers in the run directory: a stop finds them, though conf/ cannot be read any more."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from runtime.common.errors import InvalidInputError
from runtime.common.json_text import parse_json
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.options import docker
from runtime.config.options.high_availability import HA_CLUSTER_ID

_NAME = "containers.json"
_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """Where a JobManager has containers started, and the name of its cluster."""

    host: str
    certificates: str
    cluster_id: str


def remember(layout: Layout, configuration: Configuration) -> None:
    """Record where containers may run."""
    get = configuration.get
    record = ContainerRecord(get(docker.HOST), get(docker.CERTIFICATES), get(HA_CLUSTER_ID))
    path = layout.run / _NAME
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(asdict(record)), encoding="utf-8")
    draft.replace(path)


def recorded(layout: Layout) -> ContainerRecord | None:
    """What is recorded; None without a record, or with one that cannot be read."""
    try:
        found = parse_json((layout.run / _NAME).read_bytes())
        return ContainerRecord(str(found["host"]), str(found["certificates"]), str(found["cluster_id"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget(layout: Layout) -> None:
    """Record that none runs any more."""
    (layout.run / _NAME).unlink(missing_ok=True)


def end_recorded(layout: Layout) -> int:
    """End and remove the containers of this cluster, and return how many there were. Raises FlinklikeError."""
    record = recorded(layout)
    if record is None:
        return 0
    # Loaded only where it is used: most clusters have no containers.
    from runtime.entrypoint.drivers.containers import CLUSTER_LABEL, end_containers  # noqa: PLC0415
    from runtime.entrypoint.drivers.docker_engine import DockerEngine, DockerEngineError  # noqa: PLC0415

    try:
        engine = DockerEngine(record.host, Path(record.certificates) if record.certificates else None, _TIMEOUT)
        ended = end_containers(engine, {CLUSTER_LABEL: record.cluster_id})
    except (DockerEngineError, InvalidInputError) as error:
        message = (
            f"Containers of this cluster may run on: {error}. Where docker answers they are listed by "
            f"docker ps --filter label={CLUSTER_LABEL}={record.cluster_id}"
        )
        raise InvalidInputError(message) from error
    forget(layout)
    return ended
