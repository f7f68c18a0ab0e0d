"""ConfigOption: key, type, default and meaning of one setting, and the parsers of Flink's value syntax."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from runtime.common.labels import label_problems, sorted_labels
from runtime.common.worker_ids import WORKER_ID_PATTERN

T = TypeVar("T")
Ordered = TypeVar("Ordered", int, timedelta)


class Secret(str):
    """A string that never shows itself in logs, REST or tracebacks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Secret(******)"


@dataclass(frozen=True, slots=True)
class ConfigOption(Generic[T]):
    """One setting. `parse` turns text into T or raises ValueError with what was expected.

    `default_text` is what the reference shows where the default depends on the machine.
    """

    key: str
    parse: Callable[[str], T]
    default: T
    description: str
    type_name: str
    default_text: str = ""
    is_secret: bool = False

    @property
    def shown_default(self) -> str:
        """The default as a user would write it."""
        return self.default_text or render(self.default)


_DURATION_UNITS = {
    "ms": 0.001, "milli": 0.001, "millis": 0.001, "millisecond": 0.001, "milliseconds": 0.001,
    "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "d": 86400.0, "day": 86400.0, "days": 86400.0,
}  # fmt: skip
_SIZE_UNITS = {
    "": 1, "b": 1, "bytes": 1,
    "k": 1 << 10, "kb": 1 << 10, "kibibytes": 1 << 10,
    "m": 1 << 20, "mb": 1 << 20, "mebibytes": 1 << 20,
    "g": 1 << 30, "gb": 1 << 30, "gibibytes": 1 << 30,
    "t": 1 << 40, "tb": 1 << 40, "tebibytes": 1 << 40,
}  # fmt: skip
_NUMBER_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*\Z")
_ISO_DURATION = re.compile(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?\Z", re.IGNORECASE)
_BOOLEANS = {"true": True, "false": False}
_DURATION_MAX = timedelta(days=3650)
_SIZE_MAX = 1 << 60
_HOST = r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*|\[?(?=[^:]*:[^:]*:)[0-9A-Fa-f:.]+\]?)"
_HOST_ONLY = re.compile(_HOST + r"\Z")
_ID_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})\Z")
_ID_MIN, _ID_MAX = 1000, 999_999_999
_PORTS = re.compile(r"\s*(\d{1,5})(?:\s*-\s*(\d{1,5}))?\s*\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?\Z")
_ENDPOINT = re.compile(_HOST + r":(\d{1,5})\Z")


def parse_duration(text: str) -> timedelta:
    """`10 s`, `500 ms`, `5min`, `7 d` or `PT1M30S`."""
    try:
        return _duration(text)
    except OverflowError:
        message = f"expected at most {render_duration(_DURATION_MAX)}"
        raise ValueError(message) from None


def _duration(text: str) -> timedelta:
    iso = _ISO_DURATION.match(text.strip())
    if iso and any(iso.groups()):
        hours, minutes, seconds = (float(part or 0) for part in iso.groups())
        return timedelta(hours=hours, minutes=minutes, seconds=seconds)
    match = _NUMBER_UNIT.match(text)
    unit = match.group(2).lower() if match else ""
    if match is None or unit not in _DURATION_UNITS:
        message = "expected a duration such as 10 s, 500 ms, 5 min or PT10S"
        raise ValueError(message)
    return timedelta(seconds=float(match.group(1)) * _DURATION_UNITS[unit])


def parse_size(text: str) -> int:
    """`256 kb`, `1g`, `1600m` or plain bytes."""
    match = _NUMBER_UNIT.match(text)
    unit = match.group(2).lower() if match else "?"
    if match is None or unit not in _SIZE_UNITS:
        message = "expected a size such as 256 kb, 512 mb or 1g"
        raise ValueError(message)
    size = float(match.group(1)) * _SIZE_UNITS[unit]
    if size > _SIZE_MAX:
        message = "expected a size that a disk can have"
        raise ValueError(message)
    return int(size)


def parse_bool(text: str) -> bool:
    """`true` or `false`."""
    value = _BOOLEANS.get(text.strip().lower())
    if value is None:
        message = "expected true or false"
        raise ValueError(message)
    return value


def parse_string(text: str) -> str:
    """Any text, without the blanks around it."""
    return text.strip()


def parse_command_words(text: str) -> str:
    """Words as a shell takes them apart."""
    try:
        shlex.split(text)
    except ValueError as error:
        message = f"expected words as in a shell, with quotes in pairs: {error}"
        raise ValueError(message) from None
    return text.strip()


def parse_list(text: str) -> tuple[str, ...]:
    """Texts that are separated by `,` or `;`, or a YAML list in brackets."""
    inner = text.strip().removeprefix("[").removesuffix("]")
    return tuple(part.strip().strip("'\"") for part in re.split(r"[,;]", inner) if part.strip())


def parse_labels(text: str) -> tuple[str, ...]:
    """`key:value`, separated by `,` or `;`."""
    members = parse_list(text)
    if wrong := [one for one in members if one.count(":") != 1]:
        message = f"expected key:value, not {wrong[0][:80]!r}"
        raise ValueError(message)
    labels = sorted_labels([":".join(part.strip() for part in one.split(":")).replace(":", "=") for one in members])
    if problems := list(label_problems(labels)):
        raise ValueError("; ".join(problems))
    return labels


def parse_some(what: str) -> Callable[[str], tuple[str, ...]]:
    """A parser of a list that has one member at least: nobody sets an empty one on purpose."""

    def parse(text: str) -> tuple[str, ...]:
        members = parse_list(text)
        if not members:
            message = f"expected {what}; remove the option to have the default"
            raise ValueError(message)
        return members

    return parse


def parse_choices(choices: tuple[str, ...]) -> Callable[[str], tuple[tuple[str, str], ...]]:
    """A parser of a list of `name=choice` texts, in which no name comes twice."""

    def parse(text: str) -> tuple[tuple[str, str], ...]:
        pairs: list[tuple[str, str]] = []
        for part in parse_list(text):
            name, _, choice = (piece.strip() for piece in part.rpartition("="))
            if not name or choice not in choices or name in dict(pairs):
                message = f"expected name=value of each, a value of {', '.join(choices)}, and no name twice: {part!r}"
                raise ValueError(message)
            pairs.append((name, choice))
        return tuple(pairs)

    return parse


def parse_endpoints(text: str) -> tuple[str, ...]:
    """A list of `host:port` texts."""
    endpoints = parse_list(text)
    for endpoint in endpoints:
        if not _is_endpoint(endpoint):
            message = f"expected host:port of each, not {endpoint!r}"
            raise ValueError(message)
    return endpoints


def _is_endpoint(text: str) -> bool:
    match = _ENDPOINT.match(text)
    return match is not None and 0 < int(match.group(1)) < 1 << 16


def parse_hosts(text: str) -> tuple[str, ...]:
    """A list of host names or addresses, with or without a port, or `*`."""
    hosts = parse_list(text)
    for host in hosts:
        if host != "*" and not is_host(host) and not _is_endpoint(host):
            message = f"expected host names or addresses, with or without a port, not {host!r}"
            raise ValueError(message)
    return hosts


def parse_origins(text: str) -> tuple[str, ...]:
    """A list of origins, `http(s)://host` with or without a port, or `*`."""
    origins = parse_list(text)
    for origin in origins:
        scheme, _, place = origin.partition("://")
        if origin != "*" and (scheme not in {"http", "https"} or not (is_host(place) or _is_endpoint(place))):
            message = f"expected origins such as https://airflow.example:8080, not {origin!r}"
            raise ValueError(message)
    return origins


def parse_words(*known: str) -> Callable[[str], tuple[str, ...]]:
    """A parser of a list of some of `known`, each at most once."""

    def parse(text: str) -> tuple[str, ...]:
        words = tuple(word.lower() for word in parse_list(text))
        for word in words:
            if word not in known:
                message = f"expected a list of {', '.join(known)}, not {word[:80]!r}"
                raise ValueError(message)
            if words.count(word) > 1:
                message = f"{word} stands there {words.count(word)} times: name it once"
                raise ValueError(message)
        return words

    return parse


@dataclass(frozen=True, slots=True)
class PortRange:
    """Ports of which the first free one is taken; 0 to 0 is any."""

    first: int
    last: int

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def parse_port_range(text: str) -> PortRange:
    """`port` or `first-last`; 0 alone is any free port."""
    match = _PORTS.match(text)
    first = int(match[1]) if match else -1
    last = int(match[2] or first) if match else -1
    if not 0 <= first <= last < 1 << 16 or (first == 0 and last > 0):
        message = f"expected 0, a port, or a range of ports such as 9250-9270, not {text[:80]!r}"
        raise ValueError(message)
    return PortRange(first, last)


def parse_variables(text: str) -> tuple[str, ...]:
    """A list of names of environment variables, or of beginnings of names with `*`."""
    names = parse_list(text)
    for name in names:
        if not _VARIABLE.match(name) or name.startswith("FLINKLIKE"):
            message = (
                f"expected names of environment variables, or beginnings with *, and none of FLINKLIKE_*: {name!r}"
            )
            raise ValueError(message)
    return names


def parse_id_range(text: str) -> tuple[int, int] | None:
    """`first-last`: ids of users and groups from 1000 on, so none of root or of a service. None for "".

    Whether an account has one of these ids is checked where they are used.
    """
    if not text:
        return None
    match = _ID_RANGE.match(text)
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    if not _ID_MIN <= first < last <= _ID_MAX:
        message = f"expected a range of user ids from {_ID_MIN} on, such as 20000-20099, not {text[:80]!r}"
        raise ValueError(message)
    return first, last


def is_host(text: str) -> bool:
    """True for a host name or an address. No command takes such a text for an option of its own (R41)."""
    return _HOST_ONLY.match(text) is not None


def at_least(low: str, parse: Callable[[str], Ordered], high: Ordered | None = None) -> Callable[[str], Ordered]:
    """A parser that reads as `parse` does, and refuses values below `low` or above `high`."""
    lowest = parse(low)

    def parse_bounded(text: str) -> Ordered:
        value = parse(text)
        if value < lowest:
            message = f"expected at least {low}"
            raise ValueError(message)
        if high is not None and value > high:
            message = f"expected at most {render(high)}"
            raise ValueError(message)
        return value

    return parse_bounded


def matching(pattern: str, expected: str) -> Callable[[str], str]:
    """A parser of text that `pattern` matches as a whole."""
    compiled = re.compile(pattern + r"\Z")

    def parse(text: str) -> str:
        value = text.strip()
        if not compiled.match(value):
            message = f"expected {expected}"
            raise ValueError(message)
        return value

    return parse


def int_between(low: int, high: int) -> Callable[[str], int]:
    """A parser of whole numbers in [low, high]."""

    def parse(text: str) -> int:
        try:
            value = int(text.strip())
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            message = f"expected a whole number from {low} to {high}"
            raise ValueError(message)
        return value

    return parse


def float_between(low: float, high: float) -> Callable[[str], float]:
    """A parser of numbers in [low, high]."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            message = f"expected a number between {low:g} and {high:g}"
            raise ValueError(message)
        return value

    return parse


def one_of(*choices: str, refused: dict[str, str] | None = None) -> Callable[[str], str]:
    """A parser of one of `choices`. `refused` maps legal values of Flink to why they are not here."""

    def parse(text: str) -> str:
        value = text.strip()
        for choice in choices:
            if value.lower() == choice.lower():
                return choice
        reason = (refused or {}).get(value.lower())
        message = reason or f"expected one of {', '.join(choices)}"
        raise ValueError(message)

    return parse


def render(value: object) -> str:
    """A value as a user would write it in `config.yaml`; sizes stay plain numbers of bytes."""
    match value:
        case bool():
            return str(value).lower()
        case timedelta():
            return render_duration(value)
        case tuple():
            return ",".join(map(str, value))
        case None:
            return "(none)"
        case _:
            return str(value)


def render_duration(value: timedelta) -> str:
    """The shortest exact form in one unit."""
    seconds = value.total_seconds()
    for unit, factor in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= factor and seconds % factor == 0:
            return f"{int(seconds // factor)} {unit}"
    return f"{seconds * 1000:g} ms"


def duration_option(key: str, default: str, description: str, *, low: str = "1 ms") -> ConfigOption[timedelta]:
    """An option of type duration, at least `low`."""
    parse = at_least(low, parse_duration, _DURATION_MAX)
    return ConfigOption(key, parse, parse(default), description, "Duration")


def size_option(key: str, default: str, description: str, *, low: str = "1 kb") -> ConfigOption[int]:
    """An option of type size, in bytes, at least `low`."""
    parse = at_least(low, parse_size)
    return ConfigOption(key, parse, parse(default), description, "MemorySize", default)


def bool_option(key: str, description: str, *, default: bool) -> ConfigOption[bool]:
    """A switch."""
    return ConfigOption(key, parse_bool, default, description, "Boolean")


def string_option(key: str, default: str, description: str, *, default_text: str = "") -> ConfigOption[str]:
    """Free text; "" means not set."""
    return ConfigOption(key, parse_string, default, description, "String", default_text or default or "(none)")


def worker_id_option(key: str, description: str) -> ConfigOption[str]:
    """The label of a process that a driver starts."""
    parse = matching(f"({WORKER_ID_PATTERN})?", "what a driver gives it: leave it out")
    return ConfigOption(key, parse, "", description, "String", "none")


def host_option(key: str, default: str, description: str) -> ConfigOption[str]:
    """A host name or an address."""
    return ConfigOption(key, matching(_HOST, "a host name or an address"), default, description, "String")


def int_option(key: str, default: int, description: str, *, low: int = 1, high: int = 2**31 - 1) -> ConfigOption[int]:
    """A whole number within bounds."""
    return ConfigOption(key, int_between(low, high), default, description, "Integer")


def float_option(key: str, default: float, description: str, *, low: float, high: float) -> ConfigOption[float]:
    """A number within bounds."""
    return ConfigOption(key, float_between(low, high), default, description, "Double")


def choice_option(
    key: str, default: str, description: str, *choices: str, refused: dict[str, str] | None = None
) -> ConfigOption[str]:
    """One of a few words."""
    parse = one_of(*choices, refused=refused)
    return ConfigOption(key, parse, default, f"{description} One of: {', '.join(choices)}.", "Enum")
