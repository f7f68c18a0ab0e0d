"""The plug-ins that label failures: how they are found, and what is kept of what they say.

Invariants: a plug-in that raises costs its own labels and nothing else; a label has a key that its plug-in has
declared and no other one has, and is a bounded text.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from runtime.common.errors import InvalidInputError
from runtime.gateways.failure_enricher import FailureContext, FailureEnricher, label_type

logger = logging.getLogger(__name__)

ENTRY_POINT_GROUP = "airflow_flinklike.failure_enrichers"
LABEL_LENGTH_MAX = 1024


class TypeFailureEnricher:
    """Implements `FailureEnricher`: the label `type` is USER, SYSTEM or RESOURCE."""

    output_keys = frozenset({"type"})

    def enrich(self, context: FailureContext, /) -> Mapping[str, str]:
        """The label `type` of a failure."""
        return label_type(context)


_SHIPPED: dict[str, type[FailureEnricher]] = {"type": TypeFailureEnricher}


class FailureEnrichers:
    """All plug-ins of one process, asked one after the other."""

    def __init__(self, enrichers: Mapping[str, FailureEnricher]) -> None:
        counts = Counter(key for enricher in enrichers.values() for key in enricher.output_keys)
        for key, count in counts.items():
            if count > 1:
                logger.warning("%d failure enrichers have the label %s: it is left out", count, key)
        self._enrichers = {
            name: (enricher, frozenset(key for key in enricher.output_keys if counts[key] == 1))
            for name, enricher in enrichers.items()
        }

    def __call__(self, context: FailureContext) -> Mapping[str, str]:
        """The labels of one failure."""
        labels: dict[str, str] = {}
        for name, (enricher, keys) in self._enrichers.items():
            try:
                found = {key: str(value)[:LABEL_LENGTH_MAX] for key, value in enricher.enrich(context).items()}
            except Exception:
                logger.exception("failure enricher %s failed on a failure of job %s", name, context.job_id)
                continue
            labels.update({key: value for key, value in found.items() if key in keys})
        return labels


def load_failure_enrichers(names: tuple[str, ...]) -> FailureEnrichers:
    """The plug-ins with these names. Raises InvalidInputError that says which ones there are."""
    found = _installed(tuple(sys.path))
    known = sorted({*found, *_SHIPPED})
    if unknown := [name for name in names if name not in known]:
        message = f"there is no failure enricher {', '.join(unknown)}: known are {', '.join(known)}"
        raise InvalidInputError(message)
    return FailureEnrichers({name: _SHIPPED[name]() if name in _SHIPPED else found[name].load()() for name in names})


@cache
def _installed(_path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """By name. Read once: this opens a file of every installed package, 20 ms for each term of a leader."""
    return {one.name: one for one in entry_points(group=ENTRY_POINT_GROUP)}
