"""Routes of metrics: those of this JobManager, and the processes that serve theirs, as Prometheus discovers them."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from runtime.common.errors import NotFoundError
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies.schema import metrics as schema
from runtime.rest.context import MetricsView, RestContext
from runtime.rest.openapi import answers, answers_bytes

_NONE = "this cluster serves no metrics: set metrics.reporters: prometheus (docs/metrics.md)"
METRICS_PATH = "/metrics"
"""Answered by each JobManager itself, by one that stands by too."""


def metrics_router(context: RestContext) -> APIRouter:
    """All routes of metrics."""
    router = authorized_router(context, tags=["metrics"])

    @router.get(METRICS_PATH, responses=answers_bytes("text/plain"))
    async def metrics() -> Response:
        """The metrics of this JobManager, in Prometheus' text format."""
        exposition = _view(context).exposition
        if exposition is None:
            raise NotFoundError(_NONE)
        return Response(exposition.render(), headers={"content-type": exposition.content_type})

    @router.get("/metrics/targets", responses=answers(schema.MetricsTargets))
    async def targets() -> Response:
        """Every process that serves metrics, for `http_sd_configs` of Prometheus."""
        view = _view(context)
        body: schema.MetricsTargets = [
            {
                "targets": [one.address],
                "labels": {"process": one.process, "__meta_flinklike_id": one.id},
            }
            for one in view.targets(context.components)
        ]
        return JsonAnswer(body)

    return router


def _view(context: RestContext) -> MetricsView:
    if context.metrics is None:
        raise NotFoundError(_NONE)
    return context.metrics
