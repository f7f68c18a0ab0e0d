"""How a JVM ended, in words: by what it, its witness and its report say, and never by an exit code alone (R23)."""

import signal

import pytest

from runtime.taskexecutor.spark_host.jvm_end import JvmEnd, Witness, end_of_jvm, last_words, problem_in

TASK = "Executor task launch worker for task 0.0 in stage 1.0 (TID 7)"
HANDLER = "org.apache.spark.util.SparkUncaughtExceptionHandler.$anonfun$uncaughtException$1"
WORDS = "java.lang.OutOfMemoryError: Java heap space"
REPORT = """#
# A fatal error has been detected by the Java Runtime Environment:
#
#  SIGSEGV (0xb) at pc=0x00007f0e, pid=4711, tid=4712
#
# JRE version: 17
"""


def test_an_exit_code_of_three_is_memory_only_where_the_jvm_says_so() -> None:
    exhausted = end_of_jvm("gone", 3, None, WORDS, "")
    assert exhausted == JvmEnd(
        f"the JVM is out of memory: {WORDS} (exit code 3); raise taskmanager.memory.spark.size, or collect less"
    )
    assert end_of_jvm("gone", 3, None, "", "").reason.startswith("the JVM ended with code 3 and has left no word")
    called = end_of_jvm("gone", 3, Witness("slot-0-a", TASK, "x.Y.eval"), WORDS, "")
    assert called == JvmEnd(
        f"a call of session slot-0-a has ended the JVM (x.Y.eval in thread {TASK!r}, exit code 3)", "slot-0-a"
    )


@pytest.mark.parametrize(
    ("witness", "begin"),
    [
        (Witness("", "Thread-7", "x.Y.z"), "the JVM has exited, and for whom is not known (x.Y.z in thread 'Thread-7'"),
        (Witness("", "SIGTERM handler", "x.Y.z"), "the JVM was told by SIGTERM to end"),
        (Witness("slot-0-a", TASK, HANDLER), "Spark has ended its JVM after an error that no JVM survives"),
    ],
)
def test_an_exit_of_nobodys_names_no_session(witness: Witness, begin: str) -> None:
    end = end_of_jvm("gone", 52, witness, "", "")
    assert end.reason.startswith(begin)
    assert end.session_id == ""


@pytest.mark.parametrize(
    ("code", "begin"),
    [
        (None, "gone"),
        (-signal.SIGKILL, "the JVM was killed by SIGKILL (code -9), not by this TaskManager"),
        (-signal.SIGABRT, "the JVM was ended by SIGABRT (code -6), and has left no report"),
        (-250, "the JVM was ended by signal 250"),
    ],
)
def test_what_leaves_no_word_is_told_by_its_signal(code: int | None, begin: str) -> None:
    assert end_of_jvm("gone", code, None, "", "").reason.startswith(begin)


def test_a_report_counts_for_the_process_that_wrote_it() -> None:
    assert problem_in(REPORT, 4711) == "SIGSEGV (0xb) at pc=0x00007f0e"
    assert problem_in(REPORT, 4712) == ""
    assert problem_in("", 4711) == ""
    assert end_of_jvm("gone", -6, None, "", "SIGSEGV").reason == "the JVM has crashed: SIGSEGV"


def test_the_last_words_are_those_of_the_jvm() -> None:
    assert last_words(f"a line\nTerminating due to {WORDS}\n") == WORDS
    assert last_words("quoted: Terminating due to java.lang.OutOfMemoryError\n") == ""


def test_a_witness_that_was_not_written_to_its_end_says_nothing() -> None:
    assert Witness.parse("slot-0-a\nmain\nx.Y.z\n") == Witness("slot-0-a", "main", "x.Y.z")
    assert Witness.parse("slot-0-a\nma") is None
    assert Witness.parse("slot-0-a\nmain\nx.Y") is None
