"""The exception that has ended a driver JVM, read from what the JVM has written."""

from __future__ import annotations

import re

_LENGTH_MAX = 2000
_BEGIN = 'Exception in thread "'
_THROWN = re.compile(r'^(?:Exception in thread "[^"\n]*" |Caused by: )(.+)$', re.MULTILINE)
_REFUSED = re.compile(r"^Error: (.+)$", re.MULTILINE)
"""What spark-submit says of an application that it does not begin."""
_NAMED = re.compile(r"(?P<name>(?:[\w$]+\.)+[\w$]+): (?P<says>.+)")


def last_exception(written: str) -> str:
    """The innermost cause of the last exception that no code has caught, as Java writes it, or what spark-submit
    refuses; "" where there is neither.
    """
    begin = written.rfind(_BEGIN)
    found = _THROWN.findall(written[begin:]) if begin >= 0 else _REFUSED.findall(written)
    return str(found[-1]).strip()[:_LENGTH_MAX] if found else ""


def in_words(exception: str) -> str:
    """The message before the name of the class. Ivy's is a list in brackets."""
    found = _NAMED.fullmatch(exception)
    if found is None:
        return exception
    says = found["says"]
    return f"{says[1:-1] if says.startswith('[') and says.endswith(']') else says} ({found['name']})"
