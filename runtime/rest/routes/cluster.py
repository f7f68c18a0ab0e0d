"""Routes about the cluster: /overview, /config, TaskManagers, JobMaster processes, configuration."""

from __future__ import annotations

import json
from collections import Counter

from fastapi import APIRouter, Request
from fastapi.responses import Response

from runtime.common.errors import NotFoundError
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.common.version import VERSION
from runtime.common.worker_ids import shown_profile
from runtime.gateways.overview import JobMasterInfo
from runtime.gateways.resource_manager import RegisterTaskManager, ResourceProfile, TaskManagerInfo
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.access.sign_in import principal_of
from runtime.rest.answers import JsonAnswer
from runtime.rest.bodies.schema import cluster as schema
from runtime.rest.bodies.schema.access import SignedInPrincipal
from runtime.rest.bodies.schema.common import Empty
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers
from runtime.rest.routes.jobs import seen
from runtime.security.principals import Principal

_MIB = 1 << 20
_NO_METRICS: schema.TaskManagerMetrics = {
    "heapUsed": 0,
    "heapCommitted": 0,
    "heapMax": 0,
    "nonHeapUsed": 0,
    "nonHeapCommitted": 0,
    "nonHeapMax": 0,
    "directCount": 0,
    "directUsed": 0,
    "directMax": 0,
    "mappedCount": 0,
    "mappedUsed": 0,
    "mappedMax": 0,
    "nettyShuffleMemorySegmentsAvailable": 0,
    "nettyShuffleMemorySegmentsUsed": 0,
    "nettyShuffleMemorySegmentsTotal": 0,
    "nettyShuffleMemoryAvailable": 0,
    "nettyShuffleMemoryUsed": 0,
    "nettyShuffleMemoryTotal": 0,
    "garbageCollectors": [],
}
"""A TaskManager has no JVM of its own; Flink's clients want the numbers."""


def cluster_router(context: RestContext) -> APIRouter:
    """All routes that are not about one job."""
    router = authorized_router(context, tags=["cluster"])

    @router.get("/overview", responses=answers(schema.ClusterOverview))
    async def overview(request: Request) -> Response:
        """The numbers of the cluster; of jobs those that the caller may see."""
        return JsonAnswer(cluster_overview(context, principal_of(request)))

    @router.get("/principal", responses=answers(SignedInPrincipal))
    async def principal(request: Request) -> Response:
        """The principal of the request, as the cluster knows it."""
        one = principal_of(request)
        body: SignedInPrincipal = {
            "name": one.name,
            "role": one.role.text,
            "namespace": one.namespace,
            "via": one.via,
        }
        return JsonAnswer(body)

    @router.get("/config", responses=answers(schema.DashboardConfiguration))
    async def config() -> Response:
        """The settings of a dashboard."""
        body: schema.DashboardConfiguration = {
            "refresh-interval": context.refresh_interval_millis,
            "timezone-name": "Coordinated Universal Time",
            "timezone-offset": 0,
            "flink-version": VERSION,
            "flink-revision": f"flinklike @ {VERSION}",
            "features": {
                "web-submit": context.history is None,
                "web-cancel": context.history is None,
                "web-rescale": False,
                "web-history": context.history is not None,
            },
            "high-availability": _high_availability(context),
        }
        return JsonAnswer(body)

    @router.get("/jobmanager/config", responses=answers(schema.Configuration))
    async def configuration() -> Response:
        """The options that are set, secrets masked."""
        body: schema.Configuration = [{"key": key, "value": value} for key, value in context.configuration]
        return JsonAnswer(body)

    _add_store(router, context)
    _add_task_managers(router, context)
    _add_job_masters(router, context)
    return router


def _add_store(router: APIRouter, context: RestContext) -> None:
    @router.get("/jobmanager/store", responses=answers(schema.Store))
    async def store() -> Response:
        """The store of the cluster: its size against its quota, and which of its endpoints answer."""
        _ = context.components
        members = [] if context.store is None else await context.store.members()
        body: schema.Store = {
            "kind": _high_availability(context) if context.store is None else context.store.kind,
            "figures": _store_figures(context),
            "members": [
                {
                    "endpoint": one.endpoint,
                    "problem": one.problem,
                    "version": one.version,
                    "leader": one.is_leader,
                    "size-bytes": one.size_bytes,
                    "answer-millis": round(one.answer_millis, 1),
                }
                for one in members
            ],
        }
        return JsonAnswer(body)


def _store_figures(context: RestContext) -> schema.StoreFigures | None:
    found = context.store
    status = None if found is None else found.status
    if found is None or status is None:
        return None
    return {
        "version": status.version,
        "size-bytes": status.size_bytes,
        "used-bytes": status.used_bytes,
        "quota-bytes": status.quota_bytes,
        "looked-at": found.looked_millis,
    }


def _add_task_managers(router: APIRouter, context: RestContext) -> None:
    @router.get("/taskmanagers", responses=answers(schema.TaskManagers))
    async def task_managers(request: Request) -> Response:
        """All registered TaskManagers."""
        managers = context.components.resource_manager.task_managers()
        body: schema.TaskManagers = {"taskmanagers": [_task_manager(one, principal_of(request)) for one in managers]}
        return JsonAnswer(body)

    @router.get("/taskmanagers/{task_manager_id}", responses=answers(schema.TaskManagerDetails))
    async def task_manager(task_manager_id: str, request: Request) -> Response:
        """One TaskManager with its allocated slots."""
        for one in context.components.resource_manager.task_managers():
            if task_manager_id in {one.registration.task_manager_id, one.registration.incarnation}:
                body: schema.TaskManagerDetails = {
                    **_task_manager(one, principal_of(request)),
                    "metrics": _NO_METRICS,
                    "allocatedSlots": _allocated(context, principal_of(request), one),
                }
                return JsonAnswer(body)
        message = f"TaskManager {task_manager_id[:120]} not found"
        raise NotFoundError(message)

    @router.post("/taskmanagers/{task_manager_id}/drain", status_code=202, responses=answers(Empty, 202))
    async def drain_task_manager(task_manager_id: str) -> Response:
        """Have a TaskManager take no more slots and let go of its tasks. Answered when it has begun."""
        await context.components.resource_manager.drain_task_manager(task_manager_id, is_draining=True)
        return JsonAnswer({}, status_code=202)

    @router.post("/taskmanagers/{task_manager_id}/undrain", status_code=202, responses=answers(Empty, 202))
    async def undrain_task_manager(task_manager_id: str) -> Response:
        """Have a drained TaskManager give away slots again."""
        await context.components.resource_manager.drain_task_manager(task_manager_id, is_draining=False)
        return JsonAnswer({}, status_code=202)


def _add_job_masters(router: APIRouter, context: RestContext) -> None:
    @router.get("/jobmasters", responses=answers(schema.JobMasterProcesses))
    async def job_masters() -> Response:
        """All registered JobMaster processes."""
        body: schema.JobMasterProcesses = {
            "jobmasters": [_job_master(one) for one in context.dispatcher.job_masters()],
        }
        return JsonAnswer(body)

    @router.get("/jobmasters/{job_master_id}", responses=answers(schema.JobMasterProcessDetails))
    async def job_master(job_master_id: str, request: Request) -> Response:
        """One JobMaster process with those of its jobs that the caller may see."""
        jobs = seen(principal_of(request), context.dispatcher.jobs_of(Incarnation(job_master_id)))
        infos = [one for one in context.dispatcher.job_masters() if one.incarnation == job_master_id]
        body: schema.JobMasterProcessDetails = {
            **_job_master(infos[0]),
            "jobs": [{"jid": one.job_id, "name": one.name, "state": one.status.value} for one in jobs],
        }
        return JsonAnswer(body)

    @router.post("/jobmasters/{job_master_id}/drain", status_code=202, responses=answers(Empty, 202))
    async def drain(job_master_id: str) -> Response:
        """Have a JobMaster process give its jobs to others and take no more. Answered when it has begun."""
        await context.dispatcher.drain_job_master(Incarnation(job_master_id), is_draining=True)
        return JsonAnswer({}, status_code=202)

    @router.post("/jobmasters/{job_master_id}/undrain", status_code=202, responses=answers(Empty, 202))
    async def undrain(job_master_id: str) -> Response:
        """Have a drained JobMaster process take jobs again."""
        await context.dispatcher.drain_job_master(Incarnation(job_master_id), is_draining=False)
        return JsonAnswer({}, status_code=202)


def cluster_overview(context: RestContext, principal: Principal) -> schema.ClusterOverview:
    """/overview."""
    components = context.components
    slots, free = components.resource_manager.slot_counts()
    dispatcher = components.dispatcher
    if principal.is_of_all:
        statuses = Counter(dispatcher.job_counts())
    else:
        statuses = Counter(one.status for one in seen(principal, dispatcher.job_summaries()))
    pending = {one.kind: one.pending for one in components.resource_manager.workers()}
    ended = {JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED}
    return {
        "taskmanagers": len(components.resource_manager.task_managers()),
        "slots-total": slots,
        "slots-available": free,
        "jobs-running": sum(count for status, count in statuses.items() if status not in ended),
        "jobs-finished": statuses[JobStatus.FINISHED],
        "jobs-cancelled": statuses[JobStatus.CANCELED],
        "jobs-failed": statuses[JobStatus.FAILED],
        "flink-version": VERSION,
        "flink-commit": "flinklike",
        "jobmasters": len(components.dispatcher.job_masters()),
        "taskmanagers-pending": pending.get("taskmanager", 0),
        "jobmasters-pending": pending.get("jobmaster", 0),
        "leader": components.rest_address,
        "stand-bys": list(context.stand_bys()),
        "high-availability": _high_availability(context),
        "delegation-tokens": [
            {
                "provider": one.provider,
                "valid-until": one.valid_until_millis,
                "failures": one.failures,
                "failure": one.failure,
                "obtained": one.is_obtained,
            }
            for one in components.resource_manager.delegation_tokens()
        ],
        # What it holds is of all namespaces.
        "store": _store_figures(context) if principal.is_of_all else None,
    }


def _high_availability(context: RestContext) -> str:
    return dict(context.configuration).get("high-availability.type", "none")


def _task_manager(info: TaskManagerInfo, principal: Principal) -> schema.TaskManager:
    registration = info.registration
    return {
        "id": registration.task_manager_id,
        "path": registration.address,
        "dataPort": 0,
        "jmxPort": -1,
        "timeSinceLastHeartbeat": info.last_heard_millis,
        "slotsNumber": registration.slots,
        "freeSlots": info.free_slots,
        "assignedTasks": info.assigned_tasks,
        "totalResource": _resource(registration.slots, registration.slot_profile),
        "freeResource": _resource(info.free_slots, registration.slot_profile),
        "hardware": {
            "cpuCores": registration.cpu_cores,
            "physicalMemory": registration.memory_bytes,
            "freeMemory": 0,
            "managedMemory": 0,
        },
        "memoryConfiguration": _memory(registration),
        "incarnation": registration.incarnation,
        "version": registration.version,
        "spark": registration.has_spark,
        "spark-profile": registration.slot_profile.spark_profile,
        "labels": list(registration.slot_profile.labels),
        "profile": shown_profile(registration.worker_id),
        "spark-master": str(json.loads(registration.spark_conf).get("spark.master", "")),
        "spark-version": registration.spark_version,
        "warm": info.is_warm,
        "spark-environments": [
            {"key": one.key, "memory-bytes": one.memory_bytes, "users": one.users} for one in info.environments
        ],
        "not-enforced": list(registration.not_enforced),
        "tenancy": "namespace" if registration.has_tenants else "shared",
        "tenant": info.tenant if principal.sees(info.tenant) else "",
        "state": task_manager_state(info),
        "problem": info.problem,
    }


def task_manager_state(info: TaskManagerInfo) -> str:
    """Drained: it could be stopped now, and no task would notice."""
    if not info.is_draining:
        return "ready"
    return "draining" if info.allocated else "drained"


def _memory(registration: RegisterTaskManager) -> schema.MemoryConfiguration:
    """Of Flink's memory model only what tasks have exists here; its clients want numbers for the rest."""
    tasks = registration.slots * registration.slot_profile.memory_bytes
    return {
        "frameworkHeap": 0,
        "taskHeap": tasks,
        "frameworkOffHeap": 0,
        "taskOffHeap": 0,
        "networkMemory": 0,
        "managedMemory": 0,
        "jvmMetaspace": 0,
        "jvmOverhead": 0,
        "totalFlinkMemory": tasks,
        "totalProcessMemory": registration.memory_bytes,
    }


def _resource(slots: int, profile: ResourceProfile) -> schema.Resources:
    return {
        "cpuCores": slots * profile.cpu_cores,
        "taskHeapMemory": slots * profile.memory_bytes // _MIB,
        "taskOffHeapMemory": 0,
        "managedMemory": 0,
        "networkMemory": 0,
        "extendedResources": {},
    }


def _allocated(context: RestContext, principal: Principal, info: TaskManagerInfo) -> list[schema.AllocatedSlot]:
    """A slot runs one task at a time, and which of them do is the business of the jobs' owners.

    Jobs that the caller may not see have no id here (R48).
    """
    resource = _resource(1, info.registration.slot_profile)

    def shown(job_id: JobId | None) -> str | None:
        if job_id is None or principal.is_of_all:
            return job_id
        summary = context.dispatcher.job_summary(job_id)
        return job_id if summary is not None and principal.sees(summary.namespace) else ""

    return [
        {
            "index": slot.slot_index,
            "jobId": shown(slot.job_id),
            "allocationId": slot.allocation_id,
            "resource": resource,
            "assignedTasks": 1,
        }
        for slot in info.allocated
        if slot.allocation_id is not None
    ]


def _job_master(info: JobMasterInfo) -> schema.JobMasterProcess:
    return {
        "id": info.incarnation,
        "address": info.address,
        "state": info.state,
        "version": info.version,
        "capacity": info.capacity,
        "jobs-running": info.jobs_running,
        "jobs-assigned": info.jobs_assigned,
        "cpu-fraction": info.cpu_fraction,
        "memory-bytes": info.memory_bytes,
        "last-heartbeat": info.last_heard_millis,
    }
