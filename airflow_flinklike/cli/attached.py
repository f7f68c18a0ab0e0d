"""An attached run shows the tasks' output and progress until the job ends, and the cause of a failure in one sentence.

On a terminal, progress is a table below the output. Elsewhere it is a line on stderr now and then.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from airflow_flinklike.cli.output import TaskOutput
from airflow_flinklike.cli.render import duration_text, state_text, value_text, vertices_table
from airflow_flinklike.cli.waiting import WaitingLines
from airflow_flinklike.cli.words import in_options
from airflow_flinklike.client import FlinklikeClient, JobExecutionResult
from airflow_flinklike.client.operations import LONG_POLL_SECONDS
from airflow_flinklike.client.progress import ProgressLines
from airflow_flinklike.exceptions import AuthenticationError, ClusterUnavailableError, JobConflictError
from runtime.common import failure_words
from runtime.common.ids import JobId
from runtime.common.printable import printable
from runtime.common.states import JobStatus

ATTACHED_RETRY_SECONDS = 300.0
"""A cluster that has accepted the job and does not answer is retried for so long."""

SIGNED_OUT = 4
"""The exit code when the token is not accepted any more: the job runs on, its end is unknown here."""

_NO_FILE = (
    re.compile(r"No such file or directory: '(?P<name>[^'\n]{1,200})'"),
    re.compile(r"\[PATH_NOT_FOUND\].{0,80}file:/\S{1,500}/jobs/[0-9a-f]{32}/work/(?P<name>\S{1,200}?)\.(?:\s|$)"),
)
"""What a script says that misses a file: Python, and Spark of a path in the job's working directory."""
_NO_MODULE = re.compile(r"No module named '(?P<name>\w+)'")
_SUPPRESSED, _CAUSED_BY = "Recovery is suppressed: ", "\nCaused by: "


@dataclass(frozen=True, slots=True)
class Shown:
    """What an attached run shows. `is_quiet`: neither output nor progress. `as_json`: one document on stdout.

    `script` is the file of a script job, for advice about modules beside it.
    """

    is_quiet: bool = False
    as_json: bool = False
    script: Path | None = None


class _TerminatedError(BaseException):
    """SIGTERM or SIGHUP: a time limit, a scheduler or a closed terminal ends this process."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def follow(client: FlinklikeClient, job_id: JobId, console: Console, errors: Console, shown: Shown) -> int:
    """Watch a job to its end. Returns 0 for FINISHED, 1 for FAILED and CANCELED, 130 when the user cancelled it.

    Ctrl-C asks on a terminal whether to detach or to cancel. Without a terminal it detaches, and the job runs on. So do
    SIGTERM and SIGHUP, with exit codes 143 and 129; the last line says how to watch the job again. SIGNED_OUT when the
    cluster does not accept the token any more; the job runs on.
    """
    before = {number: signal.signal(number, _terminate) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        return _follow(client, job_id, console, errors, shown)
    except _TerminatedError as ended:
        errors.print(
            f"Ended by {signal.Signals(ended.number).name}; the job goes on: flinklike cancel {job_id} ends it, and "
            f"the same run with --job-id {job_id} watches it instead of starting another one"
        )
        return 128 + ended.number
    except AuthenticationError as error:
        errors.print(
            f"Job {job_id} goes on in the cluster, which does not let us watch it any more: {error}\n"
            f"With what signs in, `flinklike status {job_id}` looks at it, and the same run with --job-id {job_id} "
            "watches it instead of starting another one"
        )
        if shown.as_json:
            _write_detached(job_id)
        return SIGNED_OUT
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _terminate(number: int, _frame: object) -> None:
    raise _TerminatedError(number)


def _follow(client: FlinklikeClient, job_id: JobId, console: Console, errors: Console, shown: Shown) -> int:
    asked_to_cancel = False
    output = None if shown.is_quiet else TaskOutput(client, job_id, errors, uses_stdout=not shown.as_json)
    ended: JobExecutionResult | None = None
    while ended is None:
        try:
            ended = _watch(client, job_id, errors, output)
        except KeyboardInterrupt:
            choice = _ask(job_id, errors)
            if choice == "detach":
                errors.print(f"Detached; the job goes on: flinklike status {job_id}")
                if shown.as_json:
                    _write_detached(job_id)
                return 0
            if choice == "cancel":
                asked_to_cancel = True
                _cancel(client, job_id, errors)
        except ClusterUnavailableError:
            errors.print(f"The job may go on: flinklike status {job_id}")
            raise
    if shown.as_json:
        _write_document(ended)
    elif ended.status is JobStatus.FINISHED and ended.value is not None:
        console.print(value_text(ended.value))
    return _report(ended, errors, output, shown.script, asked_to_cancel=asked_to_cancel)


def _watch(client: FlinklikeClient, job_id: JobId, errors: Console, output: TaskOutput | None) -> JobExecutionResult:
    if output is not None and errors.is_terminal:
        with Live(console=errors, refresh_per_second=8, transient=True) as live:
            while output.is_readable and not output.has_ended:
                output.look()
                live.update(_progress(client.get(f"/jobs/{job_id}")))
    elif output is not None:
        _tell_lines(client, job_id, errors, output)
    found = None
    while found is None:
        found = client.result_within(job_id, wait=LONG_POLL_SECONDS)
    return found


def _tell_lines(client: FlinklikeClient, job_id: JobId, errors: Console, output: TaskOutput) -> None:
    progress = ProgressLines()
    waits = WaitingLines(lambda: client.status(job_id).pending_reason, time.monotonic_ns() / 1e9)
    while output.is_readable and not output.has_ended:
        output.look()
        now = time.monotonic_ns() / 1e9
        if reason := waits.take(now):
            errors.print(f"Waiting: {printable(reason)}")
        if line := progress.take(output.vertices, now):
            errors.print(f"Progress: {line}")


def _progress(details: Mapping[str, Any]) -> Group:
    head = Text.assemble(
        printable(str(details["name"])), " ", state_text(details["state"]), " ", duration_text(details["duration"])
    )
    reason = printable(str(details.get("pending-reason", "")))
    return Group(head, *([Text(reason, style="dim")] if reason else []), vertices_table(details))


def _ask(job_id: JobId, errors: Console) -> str:
    if not (sys.stdin.isatty() and errors.is_terminal):
        return "detach"
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        question = f"Job {job_id}: [d]etach and let it run, [c]ancel it, or [w]atch on? "
        answer = errors.input(question, markup=False).strip().lower()
    except (KeyboardInterrupt, EOFError):
        return "detach"
    finally:
        signal.signal(signal.SIGINT, previous)
    return {"c": "cancel", "w": "watch"}.get(answer[:1], "detach")


def _cancel(client: FlinklikeClient, job_id: JobId, errors: Console) -> None:
    try:
        client.cancel(job_id)
    except JobConflictError as error:
        errors.print(str(error))


def _write_detached(job_id: JobId) -> None:
    sys.stdout.write(json.dumps({"job_id": job_id, "detached": True}) + "\n")


def _write_document(ended: JobExecutionResult) -> None:
    document = {
        "job_id": ended.job_id,
        "status": ended.status.value,
        "result": ended.value,
        "failure": {key: value for key, value in ended.failure.items() if key != "serialized-throwable"},
        "net_runtime_millis": ended.net_runtime_millis,
    }
    sys.stdout.write(json.dumps(document) + "\n")


def _report(
    ended: JobExecutionResult, errors: Console, output: TaskOutput | None, script: Path | None, *, asked_to_cancel: bool
) -> int:
    spent = duration_text(ended.net_runtime_millis)
    for loss in output.losses() if output is not None else ():
        errors.print(f"Not all output was shown: {loss}.", style="yellow")
    if ended.status is JobStatus.FINISHED:
        errors.print(f"Job {ended.job_id} FINISHED in {spent}.", style="green")
        return 0
    if ended.status is JobStatus.CANCELED:
        errors.print(f"Job {ended.job_id} was CANCELED.", style="yellow")
        return 130 if asked_to_cancel else 1
    failure = ended.failure if script is None else _in_options(ended.failure)
    name, message = str(failure.get("class", "Error")), str(failure.get("message", ""))
    stack = str(failure.get("stack-trace", "")).strip()
    own = stack.partition(_CAUSED_BY)[2] if stack.startswith(_SUPPRESSED) else stack
    if output is None or not own or not output.has_shown(own):
        errors.print(failure_words.with_class(name, message), style="bold red")
        if stack not in {"", f"{name}: {message}".strip()}:
            errors.print(stack)
    sentence = one_sentence(failure)
    if script is not None and (hint := left_beside(script, sentence)):
        sentence = f"{sentence}. {hint}"
    errors.print(failed_line(ended.job_id, ended.net_runtime_millis, sentence), style="red")
    return 1


def _in_options(failure: Mapping[str, Any]) -> dict[str, Any]:
    return {**failure, **{key: in_options(str(failure.get(key, ""))) for key in ("message", "stack-trace")}}


def left_beside(script: Path, sentence: str) -> str:
    """Advice when a missing module or file lies beside the script, since only the script is sent; else ""."""
    if missing := next((found for pattern in _NO_FILE if (found := pattern.search(sentence))), None):
        name = missing["name"]
        places = (script.parent / name, Path(name).absolute())
        file = next((place for place in places if place.exists()), None)
        if file is not None and not PurePath(name).is_absolute():
            send = f"send it with --files {shlex.quote(str(file))}, or " if file.is_file() else ""
            return f"{file} is here, and the script runs in a directory of its own: {send}give it an absolute path"
    missed = _NO_MODULE.search(sentence) if "ModuleNotFoundError: " in sentence else None
    if missed is None:
        return ""
    module, package = script.with_name(f"{missed['name']}.py"), script.with_name(missed["name"])
    if module.is_file():
        return f"{module} lies beside the script and was not sent: send it with --py-files {shlex.quote(str(module))}"
    if package.is_dir():
        archive, folder = shlex.quote(f"{package}.zip"), shlex.quote(str(package))
        return (
            f"{package} lies beside the script and was not sent: send it with --py-files {archive}, which "
            f"python3 -m zipfile -c {archive} {folder} makes"
        )
    return ""


def one_sentence(failure: Mapping[str, Any]) -> str:
    """The cause of a failure-cause of REST: its class without the module, and the first line of its message."""
    return failure_words.one_sentence(str(failure.get("class", "Error")), str(failure.get("message", "")))


def failed_line(job_id: str, runtime_millis: int, sentence: str) -> str:
    """What `flinklike run` ends with, and `flinklike info` begins with."""
    return f"Job {job_id} FAILED after {duration_text(runtime_millis)}: {sentence}"
