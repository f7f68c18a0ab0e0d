"""Loading: config.yaml, environment variables and -D arguments, merged, parsed and checked as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, cast

import yaml

from runtime.common.errors import InvalidInputError
from runtime.common.masking import MASK, is_secret_key
from runtime.config import profile_options, queue_options
from runtime.config import token_provider_options as providers
from runtime.config.catalog import SPARK_PREFIX, all_options
from runtime.config.configuration import Configuration
from runtime.config.foreign import explain_unknown
from runtime.config.validate import conflicts

ENVIRONMENT_PREFIX = "FLINKLIKE__"
CONFIG_FILE = "config.yaml"
_WITH_LOGIN = re.compile(r"://\S*@")
"""Of a URL that is refused nobody knows where its password ends."""
_NAMED = (queue_options, profile_options)
"""Options whose names come from the operator, in the order of `Configuration`."""
_BRACKETS_MAX = 500
_PAIRS_MAX = 10_000
_EXPLAINED_MAX = 50
"""A guess at what was meant costs time: further unknown keys get none."""


class InvalidConfigurationError(InvalidInputError):
    """Everything that is wrong with the configuration, one problem a line."""

    def __init__(self, problems: Iterable[str]) -> None:
        listed = tuple(problems)
        lines = "\n".join(f"  - {problem}" for problem in listed)
        super().__init__(f"the configuration cannot be used:\n{lines}", listed)


def parse_dynamic(arguments: Iterable[str]) -> list[str]:
    """The `key=value` texts of `-D key=value` and `-Dkey=value`.

    Raises InvalidInputError for anything else, and for options that are secrets.
    """
    dynamic: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        text = next(rest, "") if argument == "-D" else argument.removeprefix("-D")
        if not argument.startswith("-D") or not text:
            message = f"unknown argument {argument!r}: only -D key=value may follow"
            raise InvalidInputError(message)
        _refuse_secret(text.partition("=")[0].strip())
        dynamic.append(text)
    return dynamic


def _refuse_secret(key: str) -> None:
    """Raises InvalidInputError for a secret (R41): every user of a host sees the arguments of its processes."""
    option = all_options().get(key)
    is_of_others = is_secret_key(key) if key.startswith(SPARK_PREFIX) else providers.is_secret(key)
    if is_of_others:
        message = f"-D {key} shows a secret to every user of this host: set it in {CONFIG_FILE}"
        raise InvalidInputError(message)
    if option is not None and option.is_secret:
        message = (
            f"-D {key} shows a secret to every user of this host: set it in {CONFIG_FILE}, or in the environment "
            f"variable {environment_name(key)}"
        )
        raise InvalidInputError(message)


class _UniqueKeyLoader(yaml.BaseLoader):
    """YAML where every scalar stays text and a key given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        seen: set[str] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                message = f"a key must be text (line {key_node.start_mark.line + 1})"
                raise yaml.YAMLError(message)
            if key_node.value in seen:
                message = f"key {key_node.value!r} is given twice (line {key_node.start_mark.line + 1})"
                raise yaml.YAMLError(message)
            seen.add(key_node.value)
        return cast("dict[Any, Any]", super().construct_mapping(node, deep))


def load(
    directory: Path | None, *, environment: Mapping[str, str], dynamic: Iterable[str] = (), check: bool = True
) -> Configuration:
    """Read, merge and check. `dynamic` holds `key=value` texts of -D. Raises InvalidConfigurationError.

    `check=False` leaves out the rules across options: for tools that only need single values.
    """
    problems: list[str] = []
    raw: dict[str, tuple[str, str]] = {}
    if directory is not None:
        _read_file(directory / CONFIG_FILE, raw, problems)
    _read_environment(environment, raw, problems)
    _read_dynamic(dynamic, raw, problems)
    configuration = _parse(raw, problems)
    if check and not problems:
        problems += conflicts(configuration)
    if problems:
        raise InvalidConfigurationError(problems)
    return configuration


def _bounded(text: str) -> str:
    """The text as it is. Raises YAMLError for a deeply bracketed one: the parser would take minutes."""
    if text.count("[") + text.count("{") > _BRACKETS_MAX:
        message = f"more than {_BRACKETS_MAX} brackets"
        raise yaml.YAMLError(message)
    return text


def _read_file(path: Path, raw: dict[str, tuple[str, str]], problems: list[str]) -> None:
    try:
        content = yaml.load(_bounded(path.read_text(encoding="utf-8")), Loader=_UniqueKeyLoader)  # noqa: S506 (BaseLoader)
        pairs = list(islice(_flatten(content, ""), _PAIRS_MAX + 1)) if isinstance(content, dict) else []
    except FileNotFoundError:
        problems.append(f"{path} does not exist: set FLINKLIKE_CONF_DIR to the directory that has it")
        return
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        problems.append(f"{path} cannot be read: {' '.join(str(error).split())}")
        return
    if content in (None, ""):
        return
    if not isinstance(content, dict):
        problems.append(f"{path} must hold keys and values, not a {type(content).__name__}")
        return
    if len(pairs) > _PAIRS_MAX:  # R52: a few lines of aliases can stand for any number of keys
        problems.append(f"{path} has more than {_PAIRS_MAX} keys")
        return
    for key, value in pairs:
        if not value and _is_area(key):
            continue
        if key in raw:
            problems.append(f"{key} is given twice in {path}, once nested and once flat")
        raw[key] = (value, str(path))


def _flatten(node: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, str]]:
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            if any(isinstance(one, dict | list) for one in value):
                message = f"{prefix}{key}: expected a list of texts"
                raise yaml.YAMLError(message)
            yield prefix + key, ",".join(value)
        else:
            yield prefix + key, str(value)


def _is_area(key: str) -> bool:
    """True for a prefix of options. `taskmanager:` without a value is such a heading."""
    return any(known.startswith(f"{key}.") for known in (*all_options(), SPARK_PREFIX))


def environment_name(key: str) -> str:
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "__").replace("-", "_")


def _read_environment(environment: Mapping[str, str], raw: dict[str, tuple[str, str]], problems: list[str]) -> None:
    names = {environment_name(key): key for key in all_options()}
    for name, value in sorted(environment.items()):
        if not name.startswith(ENVIRONMENT_PREFIX):
            continue
        key = names.get(name)
        if key is not None:
            raw[key] = (value, f"environment variable {name}")
            continue
        problems.append(f"environment variable {name} {_explain_variable(name)}")


def _explain_variable(name: str) -> str:
    key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".").replace("_", "-")
    if key.startswith(SPARK_PREFIX):
        return "cannot be read: Spark's keys have capitals, so set them in config.yaml or with -D"
    return explain_unknown(key, {known.lower(): environment_name(known) for known in all_options()})


def _read_dynamic(dynamic: Iterable[str], raw: dict[str, tuple[str, str]], problems: list[str]) -> None:
    for text in dynamic:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            problems.append(f"-D {text!r} is not of the form -D key=value")
            continue
        raw[key.strip()] = (value, f"-D {key.strip()}")


def _parse(raw: Mapping[str, tuple[str, str]], problems: list[str]) -> Configuration:
    options = all_options()
    spelling = {known.lower(): known for known in options}
    values: dict[str, Any] = {}
    spark_conf: dict[str, str] = {}
    unknown = 0
    token_providers: dict[str, str] = {}
    named: dict[str, dict[str, str]] = {one.PREFIX: {} for one in _NAMED}
    for key, (text, source) in raw.items():
        option = options.get(key)
        if option is not None:
            try:
                values[key] = option.parse(text)
            except ValueError as error:
                shown = MASK if option.is_secret else repr(_WITH_LOGIN.sub(f"://{MASK}@", text)[:80])
                problems.append(f"{key}: {shown} ({source}): {error}")
        elif key.startswith(SPARK_PREFIX):
            spark_conf[key] = text
        elif key.startswith(providers.PREFIX):
            token_providers[key] = text
            if problem := providers.key_problem(key, text):
                problems.append(f"{key[:200]} ({source[:200]}): {problem}")
        elif (area := next((one for one in _NAMED if key.startswith(one.PREFIX)), None)) is not None:
            named[area.PREFIX][key] = text
            if problem := area.key_problem(key, text):
                problems.append(f"{key[:200]} ({source[:200]}): {text[:80]!r}: {problem}")
        else:
            unknown += 1
            why = explain_unknown(key, spelling) if unknown <= _EXPLAINED_MAX else "is no option"
            problems.append(f"{key[:200]} ({source[:200]}) {why}")
    if problems:
        return Configuration(values, spark_conf)
    return Configuration(values, spark_conf, token_providers, *named.values())
