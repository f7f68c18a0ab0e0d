"""A failure in one sentence, for every place that shows one: commands, Airflow's log, the reason why a job waits."""

from __future__ import annotations

import re

SENTENCE_LENGTH_MAX = 500

_WRAPPERS = frozenset({"Py4JError", "Py4JJavaError", "PythonException"})
"""Classes of exceptions that wrap the cause: the message names the cause."""
_PLACE = re.compile(r"\([^()]+, line \d+\)")


def short_class(name: str) -> str:
    """The class without its module: `a.b.ValueError` is `ValueError`."""
    return name.rpartition(".")[2]


def with_class(class_name: str, message: str) -> str:
    """The whole message behind the class without its module; without the class where that only wraps the cause."""
    name = short_class(class_name)
    if not message:
        return name
    if name in _WRAPPERS:
        return message
    is_place = _PLACE.fullmatch(message.partition("\n")[0])
    return f"{name} {message}" if is_place else f"{name}: {message}"


def one_sentence(class_name: str, message: str) -> str:
    """The cause of a failure: its class without the module, and the first line of its message, 500 characters."""
    sentence = with_class(class_name, next((line.strip() for line in message.splitlines() if line.strip()), ""))
    return sentence if len(sentence) <= SENTENCE_LENGTH_MAX else f"{sentence[:SENTENCE_LENGTH_MAX]} ..."
