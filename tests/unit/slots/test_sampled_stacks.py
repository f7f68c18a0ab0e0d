"""Stacks as `faulthandler` writes them, and what user code may write in their place."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from runtime.gateways.task_executor import CLUSTER_FRAME, FRAME_LENGTH_MAX, FRAMES_MAX, STACKS_MAX
from runtime.taskexecutor.slots.sampled_stacks import counted, stacks_in

DUMP = """Thread 0x00007f2b (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f2c (most recent call first):
  File "/jobs/daily.py", line 7 in inner
  File "/jobs/daily.py", line 9 in total
  File "/opt/runtime/taskexecutor/slot_process/task_runner.py", line 120 in run
  File "<string>", line 1 in <module>
"""


def test_threads_become_stacks_without_our_own_frames_below() -> None:
    waiting, running = stacks_in(DUMP, is_main_on_cpu=True)
    assert waiting == (
        ("_bootstrap (/usr/lib/python3.11/threading.py:1002)", "wait (/usr/lib/python3.11/threading.py:320)"),
        False,
    )
    assert running == (("total (/jobs/daily.py:9)", "inner (/jobs/daily.py:7)"), True)
    assert not stacks_in(DUMP, is_main_on_cpu=False)[1][1]


def test_threads_of_the_cluster_are_below_one_frame() -> None:
    thread = "Thread 0x1 (most recent call first):\n{}"
    begin = '  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap\n'
    ours = '  File "/opt/runtime/taskexecutor/slot_process/channel.py", line 3 in watch\n'
    gateway = '  File "/x/site-packages/py4j/clientserver.py", line 58 in run\n'
    users = '  File "/jobs/daily.py", line 3 in fetch\n'
    for inner, is_ours in ((ours, True), (gateway, True), (users, False), (gateway + users, False), ("", False)):
        ((frames, _),) = stacks_in(thread.format(inner + begin), is_main_on_cpu=True)
        assert (frames[0] == CLUSTER_FRAME) is is_ours, inner
        assert len(frames) == inner.count("File") + 1 + is_ours


def test_a_long_path_keeps_its_end() -> None:
    """The line was cut off with it."""
    path = "/run/" + "deep/" * 60 + "daily.py"
    ((frames, _),) = stacks_in(
        f'Current thread 0x1 (most recent call first):\n  File "{path}", line 7 in total\n', is_main_on_cpu=True
    )
    assert frames[0].startswith("total (…")
    assert frames[0].endswith("deep/daily.py:7)")
    assert len(frames[0]) == FRAME_LENGTH_MAX


def test_a_process_without_user_code_shows_ours() -> None:
    ours = 'Current thread 0x1 (most recent call first):\n  File "/x/runtime/taskexecutor/a.py", line 1 in f\n'
    assert stacks_in(ours, is_main_on_cpu=False) == [(("f (/x/runtime/taskexecutor/a.py:1)",), False)]


_FRAMES = st.text(max_size=50).map(lambda text: f'  File "{text}", line 3 in {text}')


@given(st.text(max_size=2000) | st.lists(_FRAMES, max_size=200).map("\n".join))
def test_any_text_is_read_within_bounds(text: str) -> None:
    found = stacks_in(text, is_main_on_cpu=True)
    for frames, _ in found:
        assert 0 < len(frames) <= FRAMES_MAX
        assert all(len(frame) <= FRAME_LENGTH_MAX for frame in frames)
    assert len(counted(Counter(found))) <= STACKS_MAX
