"""What the reporters of a process by OTLP have in common: who they are, and what they say without the library."""

from __future__ import annotations

import socket

from runtime.common.errors import InvalidInputError
from runtime.common.ids import Incarnation
from runtime.common.version import VERSION
from runtime.config.options.otlp import OTLP_EXTRA, OTLP_PACKAGES

COMPONENTS = {"local cluster": "local", "TaskManager": "taskmanager", "standalonejob": "jobmanager"}
"""By the name of the process; the others are called as they are."""
_LIBRARIES = ("opentelemetry", "requests")


def otlp_resource(name: str, service: str, incarnation: Incarnation) -> dict[str, str]:
    """This life of a process, as a collector knows it: the same for its metrics and its traces."""
    return {
        "service.name": service,
        "service.version": VERSION,
        "service.instance.id": incarnation,
        "host.name": socket.gethostname(),
        "flinklike.process": COMPONENTS.get(name, name),
    }


def without_otlp(error: ModuleNotFoundError, key: str) -> Exception:
    """What to raise where the library is missing; the error itself where something else is."""
    if error.name is None or error.name.partition(".")[0] not in _LIBRARIES:
        return error
    return InvalidInputError(
        f"{key}: otlp takes the packages {OTLP_PACKAGES}, and {error.name} is not installed here: {OTLP_EXTRA}, or "
        "remove the option"
    )
