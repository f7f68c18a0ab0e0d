"""Many jobs commit to one base, die at any operation of the storage, and are repeated by hand: whenever `_SUCCESS` is
there, exactly the files of whole commits are (R27, R28).

The movers as they are, one after the other, on a storage without a rename; each job is over when the next one comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol, TypeVar

import fsspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId
from runtime.gateways.task import APPEND, OVERWRITE, OVERWRITE_PARTITIONS, OutputDirectory
from runtime.taskexecutor.outputs import output_turns, repeat_commit
from runtime.taskexecutor.outputs.commit_records import commit_names
from runtime.taskexecutor.storage.remote_output_files import RemoteOutputFiles
from tests.kit.control_plane.commits_of_jobs import Known, moving
from tests.kit.control_plane.task_messages import job_id

T = TypeVar("T")

ROOTS = count()
PARTITIONS = ("p=1", "p=2", "p=3")
OPERATIONS = ("put", "remove", "remove_tree", "write", "read", "written", "present", "names")
LONGEST = 60
"""Of these operations a commit of some files takes about so many."""


class Pick(Protocol):
    """Which of them it is."""

    def __call__(self, options: Sequence[T], /) -> T: ...


@dataclass
class Job:
    """What it means to do. `files`: by name, whose content is its id."""

    id: JobId
    mode: str
    files: Mapping[str, str]

    def applied(self, shown: Mapping[str, str]) -> dict[str, str]:
        """What readers are to see behind it."""
        rooms = {name.partition("/")[0] for name in self.files}
        kept = {
            APPEND: dict(shown),
            OVERWRITE: {},
            OVERWRITE_PARTITIONS: {name: row for name, row in shown.items() if name.partition("/")[0] not in rooms},
        }
        return {**kept[self.mode], **self.files}


@dataclass
class Base:
    """One base, what readers of it are to see, and the jobs that have failed."""

    pick: Pick
    root: str = field(default_factory=lambda: f"memory://one-base-{next(ROOTS)}")
    whole: dict[str, str] = field(default_factory=dict)
    failed: dict[JobId, Job] = field(default_factory=dict)
    jobs: list[JobId] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.files = RemoteOutputFiles(self.root)

    def shown(self) -> dict[str, str]:
        files, base = fsspec.core.url_to_fs(self.root)
        found = {str(path)[len(base) + 1 :]: path for path in files.find(base)}
        return {name: files.cat_file(path).decode() for name, path in found.items() if name[0] not in "._"}

    def is_whole(self) -> bool:
        files, base = fsspec.core.url_to_fs(self.root)
        return bool(files.exists(f"{base}/_SUCCESS"))

    def submit(self, mode: str = "", last: int | None = None) -> str:
        """Another job; why it failed. It dies behind so many operations."""
        mode = mode or self.pick([APPEND, OVERWRITE, OVERWRITE_PARTITIONS])
        made = job_id(len(self.jobs) + 1)
        self.jobs.append(made)
        name = "rows" if mode != APPEND and self.pick([True, False]) else f"rows-{len(self.jobs)}"
        chosen = [one for one in PARTITIONS if self.pick([True, False])] or [PARTITIONS[0]]
        job = Job(made, mode, {f"{one}/{name}": made for one in chosen})
        for one in job.files:
            self.files.write(f".attempt-{made}_0/{one}", made.encode())
        output = OutputDirectory(self.root, f"{self.root}/.attempt-{made}_0", mode)

        def commit() -> None:
            asyncio.run(moving(made, output, Known(*self.jobs[:-1])))

        return self._done(job, commit, last)

    def repeat(self, job: Job, last: int | None = None) -> str:
        """By hand, as its failure says."""

        def commit() -> None:
            if repeat_commit.main([f"{self.root}/{commit_names(job.id).directory}"]):
                raise InvalidInputError("refused")

        return self._done(job, commit, last)

    def _done(self, job: Job, commit: Any, last: int | None) -> str:
        for other in self.jobs:
            self.files.remove(commit_names(other).turn)  # by hand nobody can be asked: the failure says to delete it
        was_done = self.files.read(commit_names(job.id).done) is not None
        before, after = self.shown(), self.whole if was_done else job.applied(self.whole)
        self.failed.pop(job.id, None)
        error = ""
        with self._dying(last, after):
            try:
                commit()
            except InvalidInputError as failure:
                error, self.failed[job.id] = str(failure), job
        if was_done:
            assert self.shown() == before, "only what is hidden was left to be removed, over which others may have come"
        elif not error:
            assert self.is_whole()
        elif last is None:
            assert self.shown() == before, "who is refused changes nothing"
        if self.is_whole() and self.shown() == after:
            self.whole = after  # perhaps it died behind that
        assert not self.is_whole() or self.shown() == self.whole
        return error

    @contextlib.contextmanager
    def _dying(self, last: int | None, after: Mapping[str, str]) -> Iterator[None]:
        done = 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(output_turns, "SETTLE", 0.0)  # who had a turn is dead here, and need not be waited for
            for name in OPERATIONS:
                real = getattr(RemoteOutputFiles, name)

                def operation(*args: Any, _real: Any = real, **options: Any) -> Any:
                    nonlocal done
                    done += 1
                    if last is not None and done > last:
                        raise PermissionError(13, "killed")
                    result = _real(*args, **options)
                    assert not self.is_whole() or self.shown() in (self.whole, after), "_SUCCESS over a mixture"
                    return result

                patch.setattr(RemoteOutputFiles, name, operation)
            yield


# A failure is told as it is found: shrinking an example of so many draws takes minutes.
@pytest.mark.slow
@settings(
    max_examples=120,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data())
def test_where_it_says_that_it_is_whole_it_is(data: st.DataObject) -> None:
    def pick(options: Sequence[T]) -> T:
        return data.draw(st.sampled_from(options))

    base = Base(pick)
    for _ in range(pick(range(2, 9))):
        last = pick(range(5, LONGEST)) if pick(["dies", "dies", "lives"]) == "dies" else None
        if base.failed and pick(["repeat", "submit"]) == "repeat":
            base.repeat(base.failed[pick(sorted(base.failed))], last)
        else:
            base.submit(last=last)
    error = base.submit(APPEND)
    if error:
        command = shlex.split(error.split("bin/commit-outputs.sh ")[1])[0]
        named = JobId(command.rpartition("-")[2])
        assert base.repeat(base.failed[named]) == "", "the refusal names what mends it"
        assert base.submit(APPEND) == ""
    assert base.submit(OVERWRITE) == ""
    base.files.remove_tree("")
