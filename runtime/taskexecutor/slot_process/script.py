"""Script jobs: a whole spark-submit application, run unchanged as `__main__` of this process."""

from __future__ import annotations

import atexit
import builtins
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from runtime.jobgraph.graph import Artifact, ScriptCode
from runtime.taskexecutor.slot_process.causes import TaskError, UnusableCodeError


def script_file(code: ScriptCode, code_files: dict[str, str], job_directory: str) -> Path:
    """The script under its own name in the job's directory, as spark-submit's cluster mode has it."""
    return artifact_file(code.script, code_files, job_directory)


def artifact_file(application: Artifact, code_files: dict[str, str], job_directory: str) -> Path:
    """The file of a job's code under its own name in the job's directory. Raises UnusableCodeError."""
    target = Path(job_directory) / Path(application.name).name
    if application.url is not None:
        return target  # it was fetched
    content = _content(application, code_files)
    if not target.is_file() or target.read_bytes() != content:
        target.write_bytes(content)
    return target


def _content(application: Artifact, code_files: dict[str, str]) -> bytes:
    if application.inline is not None:
        return application.inline_bytes()
    if (path := code_files.get(application.sha256)) is not None:
        return Path(path).read_bytes()
    message = f"{application.name} was not brought to this TaskManager"
    raise UnusableCodeError(message)


def run_script(path: Path, arguments: Sequence[str]) -> None:
    """Run a file as `__main__`, to the end of its non-daemon threads and exit handlers.

    What `runpy.run_path` does, but `__main__` stays the script's module: threads, exit handlers and the pickling of
    functions defined in the script still need it after the last line. Raises what the script raises, SystemExit too.
    """
    try:
        code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        message = f"script {path.name} cannot be compiled: {error}"
        raise UnusableCodeError(message) from error
    main = ModuleType("__main__")
    main.__dict__.update(
        __file__=str(path), __builtins__=builtins, __cached__=None, __spec__=None, __loader__=None, __package__=None
    )
    sys.modules["__main__"] = main
    sys.argv = [str(path), *arguments]
    if str(path.parent) not in sys.path[:1]:
        sys.path.insert(0, str(path.parent))
    try:
        exec(code, main.__dict__)  # noqa: S102 - running the user's script is what this process is for
    finally:
        _finish_threads()


def _finish_threads() -> None:
    """The end of an interpreter, without ending it: stop executors, join non-daemon threads, run exit handlers."""
    # The workers of an executor that was left open wait until this tells them that the program is over.
    for stop in reversed(threading._threading_atexits):  # type: ignore[attr-defined]  # noqa: SLF001 - as threading._shutdown
        stop()
    current = threading.current_thread()
    while others := [t for t in threading.enumerate() if t is not current and not t.daemon]:
        for thread in others:
            thread.join()
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no public way to end a program but not its process


def returned_by(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call; `sys.exit()` with 0 or None is a return, with anything else a TaskError that carries the code or text."""
    try:
        return function(*arguments)
    except SystemExit as exited:
        code = exited.code
        if code is None or code == 0:
            return None
        message = f"the program ended with sys.exit({code})" if isinstance(code, int) else str(code)
        raise TaskError(message).with_traceback(exited.__traceback__) from None
