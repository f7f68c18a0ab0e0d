"""The records of a commit below each base (R28): their names, and the stored form of an order."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId, VertexId, parse_job_id
from runtime.common.json_text import parse_json
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.task import OutputDirectory
from runtime.taskexecutor.storage.output_names import HIDDEN_COMMIT, digest_of

TURN = ".turn"
PRECEDED = ".preceded"

NAME_MAX = 255
"""Bytes of one name, on nearly every file system."""


@dataclass(frozen=True, slots=True)
class CommitNames:
    """Below a base."""

    directory: str
    order: str
    plan: str
    moved: str
    done: str
    overtaken: str
    replaced: str
    preceded: str
    turn: str


def commit_names(job_id: JobId) -> CommitNames:
    """The names of one job's hidden files below a base."""
    directory = f"{HIDDEN_COMMIT}{job_id}"
    return CommitNames(
        directory,
        order=f"{directory}/order",
        plan=f"{directory}/plan",
        moved=f"{directory}/moved",
        done=f"{directory}/done",
        overtaken=f"{directory}/overtaken",
        replaced=f"{directory}/replaced",
        preceded=f"{directory}{PRECEDED}",
        turn=f"{directory}{TURN}",
    )


def aside_name(job_id: JobId, name: str) -> str:
    """Where an old file waits for its end that is in the way of a new directory, or the reverse: beside it."""
    directory, separator, last = name.rpartition("/")
    aside = f"{HIDDEN_COMMIT}{job_id}-aside.{last}"
    if len(os.fsencode(aside)) > NAME_MAX:
        aside = f"{HIDDEN_COMMIT}{job_id}-aside.{digest_of(last)}"
    return f"{directory}{separator}{aside}"


@dataclass(frozen=True, slots=True)
class Claimed:
    """For whom an order is. `names`: those of the base that it lies in, none where an earlier release wrote it.
    `cluster`: the one of the job, "" for none, None where it is not known.
    """

    names: tuple[str, ...] = ()
    cluster: str | None = None


def claim(message: CommitOutputs, claimed: Claimed | None = None) -> bytes:
    """The stored form of an order: enough to repeat the commit from the storage alone."""
    outputs = [[output.base, output.directory, output.mode] for output in message.outputs]
    fields: dict[str, object] = {
        "job": message.job_id,
        "epoch": message.epoch,
        "order": message.order,
        "outputs": outputs,
    }
    if claimed is not None:
        fields["names"] = claimed.names
        if claimed.cluster is not None:
            fields["cluster"] = claimed.cluster
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def read_claim(data: bytes) -> CommitOutputs | None:
    """The order in a stored claim; None for a claim that was written in part. Raises InvalidInputError for a damaged
    one, or one of a later form.
    """
    if not data.endswith(b"\n"):
        return None
    try:
        fields = parse_json(data)
        outputs = tuple(OutputDirectory(*map(_text, one)) for one in fields["outputs"])
        job_id = parse_job_id(_text(fields["job"]))
        return CommitOutputs(job_id, int(fields["epoch"]), VertexId(""), outputs, int(fields["order"]))
    except (ValueError, KeyError, TypeError, OverflowError, InvalidInputError) as error:
        message = f"the order of a commit is damaged, or of a later release: {type(error).__name__}: {error}"
        raise InvalidInputError(message) from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        message = f"a {type(value).__name__} where a text is expected"
        raise TypeError(message)
    return value


def claimed_in(data: bytes | None) -> Claimed:
    """The names and the cluster in a claim, as far as it has them."""
    if data is None or read_claim(data) is None:
        return Claimed()
    fields = parse_json(data)
    cluster, names = fields.get("cluster"), fields.get("names", ())
    # A value that is no list names no base: the base refuses it, as one that is for another name (R28).
    names = tuple(map(str, names)) if isinstance(names, list | tuple) else ("",)
    return Claimed(names, None if cluster is None else str(cluster))


def claim_in(data: bytes | None) -> tuple[int, int] | None:
    """Which order it is, by epoch and number."""
    found = read_claim(data) if data is not None else None
    return None if found is None else (found.epoch, found.order)
