"""A change that users see needs a line below "Unreleased" in CHANGELOG.md.

Users see options, bodies of REST, the command line, and messages of exceptions. `changelog [BASE]` checks what differs
from BASE, `changelog --staged MESSAGE_FILE` (the hook of a commit) what is staged. A commit message with the line
`Changelog: none` says that users see nothing of the change.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHANGELOG = "CHANGELOG.md"
NONE = re.compile(r"^Changelog: none\b", re.MULTILINE)
VISIBLE = {
    "an option": re.compile(r"(runtime/config/options/|conf/(REFERENCE\.md|config\.yaml)$)"),
    "a body of REST": re.compile(r"runtime/rest/(bodies/[\w/]*|openapi)\.py$"),
    "the command line": re.compile(
        r"(airflow_flinklike/cli/.*\.py$|bin/(?!test\.sh|fuzz\.sh|simulate\.sh)[\w-]+(\.sh)?$)"
    ),
}
"""What a file is for users, by its path. Of these a line counts that has a string in it."""
PRODUCT = re.compile(r"(runtime|jobmaster_process|airflow_flinklike)/.*\.py$")

_MESSAGE = re.compile(r"^\s*(raise \w+\(.*[\"']|message = f?[\"'])")
_TEXT = re.compile(r"[\"']|^\s*[\w.-]+:|^\|")


def visible(diff: str) -> Iterator[tuple[str, str]]:
    """What users see of a unified diff without context: (what it is, file). A line that only moves does not count."""
    for part in re.split(r"^diff --git ", diff, flags=re.MULTILINE)[1:]:
        path = part.partition("\n")[0].rpartition(" b/")[2]
        added, removed = _lines(part, "+"), _lines(part, "-")
        lines = [] if sorted(added) == sorted(removed) else [*added, *removed]
        kinds = [kind for kind, files in VISIBLE.items() if files.match(path) and any(map(_TEXT.search, lines))]
        if not kinds and PRODUCT.match(path) and any(map(_MESSAGE.search, lines)):
            kinds = ["the message of an exception"]
        yield from ((kind, path) for kind in kinds)


def _lines(part: str, sign: str) -> list[str]:
    """The lines that the diff of one file adds (+) or removes (-)."""
    body = part.partition("\n@@")[2].splitlines()
    return [line[1:] for line in body if line.startswith(sign)]


def adds_a_line(diff: str, changelog: str) -> bool:
    """Whether the diff has a new line of the part "Unreleased" of that changelog."""
    unreleased = changelog.partition("\n## Unreleased\n")[2].partition("\n## ")[0].splitlines()
    part = diff.partition(f"diff --git a/{CHANGELOG} ")[2].partition("\ndiff --git ")[0]
    return any(line.strip() and line in unreleased for line in _lines(part, "+"))


def complaint(diff: str, changelog: str, messages: str) -> str:
    """Empty, or what to do."""
    found = list(visible(diff))
    if not found or NONE.search(messages) or adds_a_line(diff, changelog):
        return ""
    seen = "".join(f"  {kind}: {path}\n" for kind, path in found)
    return (
        f"Users may see this change:\n{seen}"
        f'Say so in {CHANGELOG}, below "Unreleased", or write the line "Changelog: none" into the commit message.\n'
    )


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main(argv: Sequence[str]) -> int:
    """1 when the changelog lacks a line."""
    if argv and argv[0] == "--staged":
        diff, messages = _git("diff", "--cached", "-U0"), Path(argv[1]).read_text(encoding="utf-8")
        changelog = _git("show", f":{CHANGELOG}")
    else:
        base = _git("merge-base", argv[0] if argv else "HEAD", "HEAD").strip()
        diff, messages = _git("diff", "-U0", base), _git("log", "--format=%B", f"{base}..HEAD")
        changelog = (ROOT / CHANGELOG).read_text(encoding="utf-8")
    said = complaint(diff, changelog, messages)
    sys.stderr.write(said)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
