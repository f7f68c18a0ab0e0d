"""The spans that a leader tells: of submits, and of jobs that end without an owner."""

from __future__ import annotations

from functools import partial

from runtime.common.clock import Clock
from runtime.dispatcher.core.events import JobSource
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.executiongraph.core.job_spans import job_spans, submit_span
from runtime.logs.traces import note_trace
from runtime.traces.reporter import NO_SPANS, SpanReporter
from runtime.traces.span import TraceContext


class DispatcherTraces:
    """Tells them to the reporter of the process; nothing of a job without a trace."""

    def __init__(self, reporter: SpanReporter = NO_SPANS, clock: Clock | None = None) -> None:
        self._reporter = reporter
        self._clock = clock

    def known(self, source: JobSource) -> None:
        """This leader has the job: its log names the trace."""
        if source.trace and (context := TraceContext.parse(source.trace)) is not None:
            note_trace(source.job_id, context.trace_id)

    def submitted(self, source: JobSource) -> None:
        """A submit was made durable, and its answer is the first one."""
        context = TraceContext.parse(source.trace)
        if self._clock is not None and context is not None and context.is_sampled:
            end = self._clock.epoch_millis()
            self._reporter.tell(partial(submit_span, source.job_id, context, source.submit_millis, end))

    def ended(self, archived: ArchivedExecutionGraph, source: JobSource) -> None:
        """This leader has written the result of a job without an owner."""
        context = TraceContext.parse(source.trace)
        if context is not None and context.is_sampled:
            self._reporter.tell(partial(job_spans, archived, context, source.namespace))
