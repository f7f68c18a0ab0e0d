"""Which changes need a line in the changelog."""

from __future__ import annotations

import pytest

from tests.suite.changelog import complaint

CHANGELOG = "# Changelog\n\n## Unreleased\n\n### Added\n- A new thing.\n\n## 0.1.0\n- An old thing.\n"


def diff(path: str, *lines: str) -> str:
    body = "".join(f"{line}\n" for line in lines)
    return f"diff --git a/{path} b/{path}\nindex 1..2 100644\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n{body}"


@pytest.mark.parametrize(
    ("path", "line", "kind"),
    [
        ("runtime/config/options/rest.py", 'PORT = option("rest.port")', "an option"),
        ("runtime/rest/bodies/job_bodies.py", '"name": job.name,', "a body of REST"),
        ("airflow_flinklike/cli/app.py", 'help="what it does"', "the command line"),
        ("bin/taskmanager.sh", 'echo "started"', "the command line"),
        ("runtime/rpc/codec.py", '    raise CodecError("no message")', "the message of an exception"),
        ("runtime/rpc/codec.py", '    message = f"no {name}"', "the message of an exception"),
    ],
)
def test_what_users_see_needs_a_line(path: str, line: str, kind: str) -> None:
    change = diff(path, f"+{line}")
    assert f"  {kind}: {path}\n" in complaint(change, CHANGELOG, "Add it\n")
    assert complaint(change + diff("CHANGELOG.md", "+- A new thing."), CHANGELOG, "Add it\n") == ""
    assert complaint(change, CHANGELOG, "Move it\n\nChangelog: none\n") == ""


@pytest.mark.parametrize("line", ["+- An old thing.", "-- A new thing.", "+"])
def test_only_a_new_line_of_what_is_unreleased_counts(line: str) -> None:
    change = diff("runtime/rest/bodies/job_bodies.py", '+"name"') + diff("CHANGELOG.md", line)
    assert complaint(change, CHANGELOG, "")


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("runtime/rpc/codec.py", ["+    return decode(data)"]),
        ("runtime/rest/bodies/job_bodies.py", ['-"name"', '+"name"']),
        ("runtime/rest/bodies/job_bodies.py", ["+from runtime.common import ids"]),
        ("tests/unit/rest/test_bodies.py", ['+    raise CodecError("no message")']),
        ("bin/test.sh", ["+echo"]),
        ("docs/rest.md", ["+A sentence."]),
    ],
)
def test_what_users_do_not_see_needs_none(path: str, lines: list[str]) -> None:
    assert complaint(diff(path, *lines), CHANGELOG, "") == ""
