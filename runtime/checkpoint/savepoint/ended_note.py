"""What a query that has ended leaves beside the state of its job, for savepoints: nothing of it runs any more.

The process of the attempt writes it before the attempt is FINISHED, by Spark's file systems, into
`<state of the job>/_ended/<uid>/<subtask>`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runtime.checkpoint.savepoint.descriptions import SOURCES_MAX
from runtime.checkpoint.savepoint.file_tree import FileTree
from runtime.common.errors import InvalidInputError

_NOTES = "_ended"
_BYTES_MAX = 1024 * 1024
_Text = Annotated[str, Field(max_length=64 * 1024)]


class EndedNote(BaseModel):
    """`sink` and `sources` as in a savepoint: Spark's descriptions. `state_rows` is of the last progress."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    sink: _Text = ""
    sources: Annotated[tuple[_Text, ...], Field(max_length=SOURCES_MAX)] = ()
    state_rows: Annotated[int, Field(ge=0)] = 0


def note_path(root: str, uid: str, subtask_index: int) -> str:
    """Where the note of a query lies. `root`: of the state of all queries of the job."""
    return f"{root}/{_NOTES}/{uid}/{subtask_index}"


def read_note(root: Path, uid: str, subtask_index: int) -> EndedNote:
    """Raises InvalidInputError for one that is not there or is none, and OSError."""
    path = note_path("", uid, subtask_index).lstrip("/")
    try:
        return EndedNote.model_validate_json(FileTree(root).read(path, _BYTES_MAX))
    except (FileNotFoundError, NotADirectoryError, ValidationError) as error:
        message = (
            f"{uid!r} has finished, and {root / path}, which says where it has written, cannot be read: "
            "a query that has finished under an earlier release is in no savepoint"
        )
        raise InvalidInputError(message) from error
