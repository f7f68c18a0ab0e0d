"""Bodies about metrics: Prometheus' HTTP service discovery."""

from __future__ import annotations

from typing_extensions import TypeAliasType, TypedDict

MetricsTargetLabels = TypedDict("MetricsTargetLabels", {"process": str, "__meta_flinklike_id": str})
"""`process`: jobmanager, jobmaster or taskmanager. The id is dropped by Prometheus, unless a rule of relabeling keeps
it: ids of JobManagers and JobMaster processes are others after each start."""


class MetricsTargetGroup(TypedDict):
    """One process."""

    targets: list[str]
    labels: MetricsTargetLabels


MetricsTargets = TypeAliasType("MetricsTargets", list[MetricsTargetGroup])
"""GET /metrics/targets."""
