"""The command line of bin/standalone-job.sh: one job, options of its cluster, options of `flinklike run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.common.errors import InvalidInputError
from runtime.config.loading import parse_dynamic
from runtime.config.options.jobmanager import SINGLE_JOBMASTER

JOB_OPTION = "--job"
_DIRECTORY_OPTION = "--directory"
_OWN: dict[str, str] = {
    "--job-id": "the id follows from high-availability.cluster-id",
    "--address": "the cluster is the process that is started",
    "--token-file": "the cluster is the process that is started: -D security.token-file=...",
    "--detached": "start returns, start-foreground stays until the job has ended",
    "-d": "start returns, start-foreground stays until the job has ended",
    "--json": "ask the cluster's REST, or `flinklike status --json`",
    "--quiet": "the tasks' output is shown by `flinklike logs`",
    "-q": "the tasks' output is shown by `flinklike logs`",
}
"""Options of `flinklike run` that have no meaning here, and what to do instead."""


@dataclass(frozen=True, slots=True)
class JobCommand:
    """`target` is that of `flinklike run`, `options` are its options, `arguments` those of a script.

    `dynamic`: the -D options of the cluster. `directory`: where the target and files of options are looked for.
    """

    target: str
    directory: Path
    dynamic: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """The same as a command line, for `parse_job_command`."""
        dynamic = [word for text in self.dynamic for word in ("-D", text)]
        behind = ["--", *self.arguments] if self.arguments else []
        return [*dynamic, JOB_OPTION, self.target, _DIRECTORY_OPTION, str(self.directory), *self.options, *behind]

    def cluster_options(self) -> tuple[str, ...]:
        """The -D options of the process: the job's JobMaster runs in it."""
        return (f"{SINGLE_JOBMASTER.key}=false", *self.dynamic)


def parse_job_command(words: Sequence[str], directory: Path) -> JobCommand:
    """`directory` counts unless the words name one. Raises InvalidInputError."""
    front, arguments = _split(words)
    targets: list[str] = []
    dynamic: list[str] = []
    options: list[str] = []
    may_be_value = False
    rest = iter(front)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in {JOB_OPTION, "-j", _DIRECTORY_OPTION}:
            value = value if equals else next(rest, "")
            if not value:
                message = f"{name} needs a value"
                raise InvalidInputError(message)
            if name == _DIRECTORY_OPTION:
                directory = Path(value)
            else:
                targets.append(value)
            may_be_value = False
        elif word.startswith("-D"):
            dynamic += parse_dynamic([word] if word != "-D" else [word, next(rest, "")])
            may_be_value = False
        else:
            _check_option(word, name, may_be_value=may_be_value)
            options.append(word)
            may_be_value = word.startswith("-") and not equals
    if len(targets) != 1:
        message = f"name one job: {JOB_OPTION} module:pipeline, or {JOB_OPTION} script.py [-- arguments of the script]"
        raise InvalidInputError(message)
    return JobCommand(targets[0], directory.absolute(), tuple(dynamic), tuple(options), arguments)


def _split(words: Sequence[str]) -> tuple[Sequence[str], tuple[str, ...]]:
    """What stands before `--`, and behind it."""
    if "--" not in words:
        return words, ()
    at = list(words).index("--")
    return words[:at], tuple(words[at + 1 :])


def _check_option(word: str, name: str, *, may_be_value: bool) -> None:
    if name in _OWN:
        message = f"{name} is no option here: {_OWN[name]}"
        raise InvalidInputError(message)
    if not word.startswith("-") and not may_be_value:
        message = f"{word!r}: arguments of a script stand behind --, as in {JOB_OPTION} script.py -- {word}"
        raise InvalidInputError(message)
