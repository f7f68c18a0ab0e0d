"""The exceptions of Java behind an error of PySpark or py4j. Imports neither: without Spark there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_JAVA_CHAIN_MAX = 20


@dataclass(frozen=True, slots=True)
class JavaCause:
    """One exception of a Java chain."""

    class_name: str
    message: str


def java_chain(error: BaseException) -> tuple[JavaCause, ...]:
    """The Java exceptions behind an error of PySpark or py4j, root cause last. Some round trips to the JVM, if any."""
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    found: list[JavaCause] = []
    try:
        while java is not None and len(found) < _JAVA_CHAIN_MAX:
            found.append(JavaCause(str(java.getClass().getName()), str(java.getMessage() or "")))
            java = java.getCause()
    except Exception:  # noqa: BLE001 - the JVM is dead, or the attribute is user code's own: what was read has to do
        return tuple(found)
    return tuple(found)
