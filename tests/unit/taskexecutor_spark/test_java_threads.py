"""The text of a JVM, which jobs may have written, thread by thread."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runtime.taskexecutor.spark.java_threads import TEXT_MAX, threads_of

DUMP = """2026-11-28 14:38:59
Full thread dump OpenJDK 64-Bit Server VM:

Threads class SMR info:
_java_thread_list=0x01, length=2, elements={
0x01
}

"main" #1 prio=5 nid=0x2889 runnable
   java.lang.Thread.State: RUNNABLE
\tat java.io.FileInputStream.readBytes(Native Method)

"Executor task launch worker for task 0.0 in stage "x" (TID 1)" #2 daemon

JNI global refs: 20, weak refs: 0
"""


def test_each_thread_has_its_name_and_its_text() -> None:
    found = list(threads_of(DUMP))
    assert [name for name, _ in found] == [
        "",
        "",
        "main",
        'Executor task launch worker for task 0.0 in stage "x',
        "",
    ]
    assert found[2][1].startswith('"main" #1')
    assert found[2][1].endswith("readBytes(Native Method)\n")


@given(st.text())
def test_any_text_is_read_and_none_of_it_is_lost(text: str) -> None:
    joined = "".join(block for _, block in threads_of(text))
    assert joined.replace("\n", "") == text.replace("\n", "")
    assert all(len(name) <= 200 and "\n" not in name for name, _ in threads_of(text))


def test_what_is_read_is_bounded() -> None:
    assert sum(len(block) for _, block in threads_of('"x" \n\n' * TEXT_MAX)) <= TEXT_MAX
