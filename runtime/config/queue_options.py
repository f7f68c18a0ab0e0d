"""`slotmanager.queue.<name>.*`: options of queues, whose names come from the operator (D-128)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from runtime.common.errors import InvalidInputError
from runtime.common.namespaces import ALL_NAMESPACES, check_namespace
from runtime.common.shares import DEFAULT_QUEUE, QUEUE_PATTERN, WEIGHT_MAX, WEIGHT_MIN, QueueSettings
from runtime.config.option import float_between, int_between, parse_list

PREFIX = "slotmanager.queue."
QUEUES_MAX = 1000
SLOTS_MAX = 1_000_000


def _namespaces(text: str) -> tuple[str, ...]:
    names = parse_list(text)
    for name in names:
        if name != ALL_NAMESPACES:
            try:
                check_namespace(name)
            except InvalidInputError as error:
                raise ValueError(str(error)) from None
    return names


@dataclass(frozen=True, slots=True)
class QueueOption:
    """One option of each queue: its key behind the name, and its field of QueueSettings."""

    key: str
    field: str
    parse: Callable[[str], object]
    type_name: str
    default: str
    description: str


OPTIONS = (
    QueueOption(
        "weight",
        "weight",
        float_between(WEIGHT_MIN, WEIGHT_MAX),
        "Double",
        "1",
        "Slots are shared between the queues that have jobs in proportion to this.",
    ),
    QueueOption(
        "min-slots",
        "min_slots",
        int_between(0, SLOTS_MAX),
        "Integer",
        "0",
        "The queue gets so many slots before the weights count. What its jobs do not want is for all.",
    ),
    QueueOption(
        "max-slots",
        "max_slots",
        int_between(1, SLOTS_MAX),
        "Integer",
        "(none)",
        "The queue gets no more slots, even when some are free.",
    ),
    QueueOption(
        "max-running-jobs",
        "max_running_jobs",
        int_between(1, SLOTS_MAX),
        "Integer",
        "(none)",
        "So many jobs of the queue hold slots at once. Those get all the slots that they need; others wait.",
    ),
    QueueOption(
        "namespaces",
        "namespaces",
        _namespaces,
        "List",
        "(none)",
        "Namespaces whose jobs may name the queue, `*` for all. Principals of all namespaces may always.",
    ),
)
_BY_KEY = {one.key: one for one in OPTIONS}
_KEY = re.compile(re.escape(PREFIX) + f"({QUEUE_PATTERN})" + r"\.([a-z-]{1,40})\Z")


def key_problem(key: str, value: str) -> str:
    """The problem of a setting whose key begins with PREFIX, "" when there is none."""
    found = _KEY.match(key)
    option = None if found is None else _BY_KEY.get(found[2])
    if found is None or option is None:
        return (
            f"expected {PREFIX}<name>.<option>, a name of letters, digits and . _ @ -, and one of the options "
            f"{', '.join(_BY_KEY)}"
        )
    if (found[1], option.key) == (DEFAULT_QUEUE, "namespaces"):
        return f"every job may wait in the queue {DEFAULT_QUEUE}: remove it"
    try:
        option.parse(value)
    except ValueError as error:
        return str(error)
    return ""


def queues_of(settings: Mapping[str, str]) -> Mapping[str, QueueSettings]:
    """The queues that have an option, by name. Each setting is without a problem."""
    grouped: dict[str, dict[str, object]] = {}
    for key, value in settings.items():
        found = _KEY.match(key)
        assert found is not None, key
        option = _BY_KEY[found[2]]
        grouped.setdefault(found[1], {})[option.field] = option.parse(value)
    return {name: QueueSettings(**options) for name, options in sorted(grouped.items())}  # type: ignore[arg-type]


def conflicts(queues: Mapping[str, QueueSettings]) -> Iterator[str]:
    """What is wrong between settings that are valid on their own."""
    if len(queues) > QUEUES_MAX:
        yield f"{PREFIX}*: {len(queues)} queues have options, the limit is {QUEUES_MAX}"
    for name, one in queues.items():
        if one.max_slots is not None and one.min_slots > one.max_slots:
            yield f"{PREFIX}{name}.min-slots is {one.min_slots}, above max-slots, which is {one.max_slots}"
