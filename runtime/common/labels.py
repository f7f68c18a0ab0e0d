"""Labels of TaskManagers, and of the slots that jobs ask for: `key=value`, sorted, one value for each key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

LABELS_MAX = 16
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}=[A-Za-z0-9._-]{1,63}\Z")


def sorted_labels(labels: Mapping[str, str] | Sequence[str]) -> tuple[str, ...]:
    """Their one form, in which equal labels are equal."""
    texts = [f"{key}={value}" for key, value in labels.items()] if isinstance(labels, Mapping) else labels
    return tuple(sorted(dict.fromkeys(texts)))


def label_problems(labels: Sequence[str]) -> Iterator[str]:
    """What is wrong with them."""
    for label in labels:
        if not _LABEL.match(label):
            yield (
                f"{label[:80]!r} is no label: expected key=value, each at most 63 letters, digits, '.', '_' and '-', "
                "in the key also '/'"
            )
    keys = [label.partition("=")[0] for label in labels]
    if double := sorted({key for key in keys if keys.count(key) > 1}):
        yield f"the label {double[0][:80]} has two values: no TaskManager has both"
    if len(labels) > LABELS_MAX:
        yield f"{len(labels)} labels are given, the limit is {LABELS_MAX}"
