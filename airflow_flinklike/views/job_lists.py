"""The list of jobs in Airflow's navigation: those of readable DAGs, as their clusters know them now."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

from pydantic import BaseModel, Field

from airflow_flinklike.views.clusters import ClusterProblemError, cluster_of
from airflow_flinklike.views.task_jobs import TaskJob, latest

JOBS_MAX = 500
"""The jobs that were stored last; older ones are found at their task instances."""
CLUSTERS_MAX = 20
_NAMED_MAX = 5
_LENGTH_MAX = 200
_ENDED = frozenset({"FINISHED", "FAILED", "CANCELED"})


class ListQuery(BaseModel):
    """The query of GET /jobs/overview, as the dashboard's page of jobs sends it."""

    state: Annotated[str, Field(max_length=40)] = ""
    name: Annotated[str, Field(max_length=_LENGTH_MAX)] = ""
    sort: Annotated[str, Field(max_length=40)] = ""
    after: Annotated[str, Field(max_length=64)] = ""
    limit: Annotated[int, Field(ge=0, le=JOBS_MAX)] = 50


def list_jobs(dag_ids: Collection[str], wanted: ListQuery) -> Mapping[str, Any]:
    """The body: a page of rows with the address of each, how many there are in all, and clusters that do not answer."""
    by_cluster: dict[str, list[TaskJob]] = {}
    for one in latest(dag_ids, JOBS_MAX) if dag_ids else ():
        by_cluster.setdefault(one.job.conn_id, []).append(one)
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    asked = list(by_cluster.items())[:CLUSTERS_MAX]
    if left := list(by_cluster)[CLUSTERS_MAX:]:
        problems.append(_left_out(left))
    with ThreadPoolExecutor(max(1, len(asked)), "flinklike lists") as threads:
        for found, problem in threads.map(lambda one: _of_cluster(*one), asked):
            rows += found
            problems += [problem] if problem else []
    chosen = _ordered([row for row in rows if _is_wanted(row, wanted)], wanted.sort)
    start = next((at for at, row in enumerate(chosen, 1) if row["jid"] == wanted.after), 0) if wanted.after else 0
    page = chosen[start : start + (wanted.limit or JOBS_MAX)]
    more = page[-1]["jid"] if page and start + len(page) < len(chosen) else ""
    return {"jobs": page, "total": len(chosen), "next": more, "problems": problems}


def _left_out(conn_ids: Sequence[str]) -> str:
    named = ", ".join(one[:_LENGTH_MAX] for one in conn_ids[:_NAMED_MAX])
    more = f" and {len(conn_ids) - _NAMED_MAX} more" if len(conn_ids) > _NAMED_MAX else ""
    return (
        f"jobs of Airflow's connections {named}{more} are not in this list: it asks at most {CLUSTERS_MAX} clusters, "
        "those of the latest jobs. The tab of a task instance shows its job"
    )


def _of_cluster(conn_id: str, jobs: Sequence[TaskJob]) -> tuple[list[dict[str, Any]], str]:
    """Rows of those that the cluster still knows, and why there are none."""
    by_id = {one.job.job_id: one for one in jobs}
    try:
        with cluster_of(conn_id) as client:
            answer = client.post("/jobs/wait", {"known": dict.fromkeys(by_id, 0), "wait": 0})
    except ClusterProblemError as error:
        return [], str(error)
    return [_row(row, by_id[row["jid"]]) for row in answer["jobs"] if row.get("jid") in by_id], ""


def _row(row: Mapping[str, Any], of: TaskJob) -> dict[str, Any]:
    place = of.place
    task = f"{place.dag_id}.{place.task_id}" + (f"[{place.map_index}]" if place.map_index >= 0 else "")
    href = f"ti/{place.reference()}/ui/jobs/{of.job.job_id}"
    return {**row, "href": href, "task": task, "run": place.run_id}


def _is_wanted(row: Mapping[str, Any], wanted: ListQuery) -> bool:
    if wanted.state == "unfinished":
        if row["state"] in _ENDED:
            return False
    elif wanted.state and row["state"] != wanted.state:
        return False
    text = wanted.name.lower()
    return not text or row["jid"].startswith(text) or any(text in row[of].lower() for of in ("name", "task", "run"))


def _ordered(rows: list[dict[str, Any]], sort: str) -> list[dict[str, Any]]:
    newest_first = sorted(rows, key=lambda row: (row["start-time"], row["jid"]), reverse=True)
    match sort:
        case "oldest":
            return newest_first[::-1]
        case "longest":
            return sorted(newest_first, key=lambda row: row["duration"], reverse=True)
        case "name":
            return sorted(newest_first, key=lambda row: row["name"].lower())
        case _:
            return newest_first
