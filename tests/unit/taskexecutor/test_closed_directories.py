"""R50: the one directory that keeps slots with users of their own from starting."""

from __future__ import annotations

from pathlib import Path

from runtime.taskexecutor.directories.job_users import closed_to_others, what_to_open


def test_the_directory_that_is_closed_to_others_is_named(tmp_path: Path) -> None:
    before = closed_to_others([tmp_path])
    outer, inner = tmp_path / "a", tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(inner)
    for mode, closed in ((0o711, None), (0o700, outer), (0o750, outer)):
        outer.chmod(mode)
        for path in (inner, link, inner / "file"):
            assert closed_to_others([path]) == (before or closed)


def test_a_python_that_others_can_read_comes_before_a_directory_that_is_opened(tmp_path: Path) -> None:
    python, here = tmp_path / "root" / "python", tmp_path / "opt" / "flinklike"
    used = {"Python": python, "the installation": here}
    for closed, named in (
        (tmp_path / "root", [python]),
        (here, [here]),
        (tmp_path, [python, here]),
        (None, [python, here]),
    ):
        said = what_to_open(closed, used)
        assert [path for path in (python, here) if str(path) in said] == named
        assert said.index("PYTHON=/usr/bin/python3.11") < said.index("chmod o+x")


def test_where_only_work_is_closed_nothing_is_said_of_python(tmp_path: Path) -> None:
    closed = tmp_path / "exchange"
    said = what_to_open(closed, {"Python": tmp_path / "opt"})
    assert "exchange.dir" in said
    assert f"chmod o+x {closed}" in said
    assert "PYTHON" not in said
