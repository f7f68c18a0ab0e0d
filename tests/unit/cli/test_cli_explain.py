"""`flinklike explain JOB`: the plan of a submitted job, with what was chosen."""

from __future__ import annotations

import json
from dataclasses import replace

from runtime.common.states import JobStatus
from tests.kit.host.command_line import RunCommand
from tests.kit.rest.fakes import JOB
from tests.kit.rest.server import RestThread


def test_explain_of_a_job_says_what_was_chosen_and_from_which_numbers(
    flinklike: RunCommand, server: RestThread
) -> None:
    server.put(JOB, JobStatus.RUNNING)
    graph = server.dispatcher.graphs[JOB]
    first, second = graph.vertices
    chosen = replace(first, name="read\x1b[2J", parallelism=4, decision="4 for 3.8 MiB, one for each 1.0 MiB")
    server.dispatcher.graphs[JOB] = replace(graph, vertices=(chosen, replace(second, parallelism=-1)))
    shown = flinklike("explain", JOB).out
    assert f"job {graph.name} {JOB}\n" in shown
    assert "(parallelism 4)" in shown
    assert "[2J': 4 for 3.8 MiB, one for each 1.0 MiB\n" in shown
    assert f"{second.name}  (parallelism not chosen yet, up to {second.max_parallelism}, exclusive)\n" in shown
    assert f"==HASH==>  {second.name}\n" in shown
    assert "\x1b" not in shown
    document = json.loads(flinklike("explain", JOB, "--json").out)
    assert [one["decision"] for one in document["chains"]] == ["4 for 3.8 MiB, one for each 1.0 MiB", ""]
    assert [one["mode"] for one in document["exchanges"]] == ["HASH"]
    refused = flinklike("explain", JOB, "-p", "3")
    assert (refused.code, "is a job of the cluster, which has its --parallelism" in refused.err) == (1, True)
