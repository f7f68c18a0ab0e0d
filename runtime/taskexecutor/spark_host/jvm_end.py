"""How a JVM ended, in words, and which session ended it, if that is known (R23). Nothing is guessed from an exit code.

What speaks: the witness that an exit leaves (`jvm/ExitWitness.java`), the JVM's own last words about its memory, the
report of its crash, and the signal that ended it. `Runtime.halt` and native code that exits leave none of these.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

_MEMORY_EXIT_CODE = 3
"""Exit code of -XX:+ExitOnOutOfMemoryError, and of any script that calls System.exit(3)."""
_MEMORY_WORDS = re.compile(r"^Terminating due to (java\.lang\.OutOfMemoryError.*)$", re.MULTILINE)
_PROBLEM = re.compile(r"^#[ \t]+(?P<what>\S.*), pid=(?P<pid>\d+), tid=", re.MULTILINE)
_SPARKS_OWN = "org.apache.spark.util.SparkUncaughtExceptionHandler."
"""Spark ends its JVM after errors such as OutOfMemoryError, in whatever task that all share they come up."""
_SIGNAL_THREAD = re.compile(r"(SIG[A-Z]+) handler")


@dataclass(frozen=True, slots=True)
class Witness:
    """The call that made a JVM exit. `session_id`: "" where no session is known to have made it."""

    session_id: str
    thread: str
    caller: str

    @classmethod
    def parse(cls, text: str) -> Witness | None:
        """The three lines of the file; None where it was not written, or not to its end."""
        lines = text.split("\n")
        return cls(*lines[:3]) if len(lines) > 3 else None


@dataclass(frozen=True, slots=True)
class JvmEnd:
    """How a JVM has ended. `session_id`: the session whose call ended it, "" where none did, or it is not known."""

    reason: str
    session_id: str = ""


def last_words(log: str) -> str:
    """The line that the JVM wrote about its memory before it ended itself; `log` is of this JVM's life alone."""
    found = _MEMORY_WORDS.findall(log)
    return str(found[-1]).strip() if found else ""


def problem_in(report: str, pid: int) -> str:
    """The problem in the head of a crash report of this process, "" if the report is another process's."""
    found = _PROBLEM.search(report)
    return found["what"] if found is not None and int(found["pid"]) == pid else ""


def end_of_jvm(otherwise: str, code: int | None, witness: Witness | None, words: str, crash: str) -> JvmEnd:
    """The end, from all that is known. `otherwise`: the first sign, which stands while the JVM lives (`code` None)."""
    if witness is not None:
        return _exit(witness, code)
    if crash:
        return JvmEnd(f"the JVM has crashed: {crash}")
    if code is None:
        return JvmEnd(otherwise)
    return JvmEnd(_signal(-code) if code < 0 else _code(code, words))


def _signal(number: int) -> str:
    if number == signal.SIGKILL:
        return (
            "the JVM was killed by SIGKILL (code -9), not by this TaskManager: most likely by the machine's "
            "out-of-memory killer"
        )
    return f"the JVM was ended by {_name(number)} (code {-number}), and has left no report"


def _code(code: int, words: str) -> str:
    if code == _MEMORY_EXIT_CODE and words:
        what_to_do = "raise taskmanager.memory.spark.size, or collect less"
        return f"the JVM is out of memory: {words} (exit code {code}); {what_to_do}"
    return f"the JVM ended with code {code} and has left no word, as after Runtime.halt, or an exit of native code"


def _exit(witness: Witness, code: int | None) -> JvmEnd:
    told = _SIGNAL_THREAD.fullmatch(witness.thread)
    if told is not None:
        return JvmEnd(f"the JVM was told by {told[1]} to end, not by this TaskManager")
    how = f"{witness.caller or 'unknown code'} in thread {witness.thread!r}"
    how += "" if code is None else f", exit code {code}"
    if witness.caller.startswith(_SPARKS_OWN):
        return JvmEnd(f"Spark has ended its JVM after an error that no JVM survives, which its log shows ({how})")
    if not witness.session_id:
        return JvmEnd(f"the JVM has exited, and for whom is not known ({how})")
    return JvmEnd(f"a call of session {witness.session_id} has ended the JVM ({how})", witness.session_id)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
