"""Which gateways and which stream messages exist: the closed world that the codec and both transports serve."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from runtime.common.errors import BugError
from runtime.gateways import dispatcher, job_master, resource_manager
from runtime.gateways.dispatcher import DispatcherGateway
from runtime.gateways.process import ProcessGateway
from runtime.gateways.task_executor import TaskExecutorGateway

R = TypeVar("R")


def once_per_type(make: Callable[[type[Any]], R]) -> Callable[[type[Any]], R]:
    """Cache the result of `make` for each class. The number of message classes bounds the cache."""
    made: dict[type[Any], R] = {}

    def get(key: type[Any]) -> R:
        if key not in made:
            made[key] = make(key)
        return made[key]

    return get


GATEWAYS: tuple[type[Any], ...] = (DispatcherGateway, TaskExecutorGateway, ProcessGateway)
"""Gateways that are served to other processes. Views and listeners stay inside their process."""

_STREAM_UNIONS: tuple[types.UnionType, ...] = (
    job_master.JobMasterToTaskManager,
    job_master.TaskManagerToJobMaster,
    resource_manager.TaskManagerToResourceManager,
    resource_manager.ResourceManagerToTaskManager,
    dispatcher.JobMasterToDispatcher,
    dispatcher.DispatcherToJobMaster,
)

STREAM_MESSAGES: tuple[type[Any], ...] = tuple(
    dict.fromkeys(message for union in _STREAM_UNIONS for message in typing.get_args(union))
)
"""Every message that may travel on a stream."""


@dataclass(frozen=True, slots=True)
class GatewayMethod:
    """One method of a gateway: its name in Python and on the wire, and the two messages."""

    gateway: str
    name: str
    path: str
    request_type: type[Any]
    response_type: type[Any]


@once_per_type
def gateway_methods(gateway_type: type[Any]) -> Mapping[str, GatewayMethod]:
    """The methods of a gateway Protocol by Python name. Raises BugError for a method of another shape."""
    methods: dict[str, GatewayMethod] = {}
    for name in sorted(getattr(gateway_type, "__protocol_attrs__", ()) or _public_names(gateway_type)):
        hints = typing.get_type_hints(getattr(gateway_type, name))
        response_type = hints.pop("return", None)
        if response_type is None or len(hints) != 1:
            message = f"{gateway_type.__name__}.{name} does not take one message and return one"
            raise BugError(message)
        (request_type,) = hints.values()
        path = f"/flinklike.{gateway_type.__name__}/{camel_case(name)}"
        methods[name] = GatewayMethod(gateway_type.__name__, name, path, request_type, response_type)
    return methods


def _public_names(gateway_type: type[Any]) -> list[str]:
    return [
        name
        for base in gateway_type.__mro__
        for name, value in vars(base).items()
        if not name.startswith("_") and callable(value)
    ]


def camel_case(name: str) -> str:
    """submit_job -> SubmitJob."""
    return "".join(word.capitalize() for word in name.split("_"))


def constant_case(name: str) -> str:
    """JobStatus -> JOB_STATUS."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()
