"""FlinklikeSavepointOperator makes a savepoint of a streaming job; FlinklikeStopOperator finishes the job with one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator, BaseOperatorLink

from airflow_flinklike.airflow_options import configured
from airflow_flinklike.airflow_version import AirflowFailException, conf
from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.client.requested_once import StreamRequest, request_once, savepoint_of
from airflow_flinklike.exceptions import JobConflictError, JobNotFoundError, JobRefusedError, PipelineError
from airflow_flinklike.hooks.flinklike import DEFAULT_CONN_ID, FlinklikeHook
from airflow_flinklike.links.job import FlinklikeJobLink
from airflow_flinklike.operators.fields import check_directory, check_poll_interval
from airflow_flinklike.operators.final_errors import FinalJobConflictError, FinalJobNotFoundError, FinalJobRefusedError
from airflow_flinklike.operators.job_run import life_of
from airflow_flinklike.task_instance.task_states import TaskKey
from airflow_flinklike.task_instance.xcoms import push_job
from airflow_flinklike.triggers.job import error_of_event
from airflow_flinklike.triggers.savepoint import FlinklikeSavepointTrigger
from runtime.common.errors import InvalidInputError
from runtime.common.ids import parse_job_id

if TYPE_CHECKING:
    from airflow.sdk import Context


class _SavepointTask(BaseOperator):
    """What both operators are: they ask once, and wait."""

    operator_extra_links: Collection[BaseOperatorLink] = (FlinklikeJobLink(),)
    ui_color = "#e8f0fb"

    def __init__(
        self,
        *,
        job: str,
        poll_interval: float = 2.0,
        flinklike_conn_id: str = DEFAULT_CONN_ID,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.poll_interval = poll_interval
        check_poll_interval(poll_interval)
        self.flinklike_conn_id = flinklike_conn_id
        self.deferrable = deferrable

    @abstractmethod
    def _request(self, job_id: Any, asks: tuple[str | int, ...]) -> StreamRequest:
        """What the rendered fields ask for."""

    def execute(self, context: Context) -> str:
        """Ask for the savepoint, or find what an earlier try has asked for, then wait or defer. Returns its path."""
        request = self._request_of(context)
        with self._connect() as client:
            push_job(context["ti"], request.job_id, self._hook().access().job_url(request.job_id))
            try:
                trigger_id = client.run(request_once(request))
            except JobRefusedError as error:
                raise FinalJobRefusedError(str(error), error.problems) from error
            except JobNotFoundError as error:
                raise FinalJobNotFoundError(str(error)) from error
            except JobConflictError as error:
                if client.status(request.job_id).status.is_globally_terminal:
                    raise FinalJobConflictError(str(error)) from error
                raise  # another one of its operations is in the way, which ends
            self.log.info("Job %s: %s requested, trigger id %s", request.job_id, self._word(request), trigger_id)
            if self.deferrable:
                self._defer(request, trigger_id)
            return self._told(client, request, trigger_id)

    def _defer(self, request: StreamRequest, trigger_id: str) -> NoReturn:
        trigger = FlinklikeSavepointTrigger(
            self.flinklike_conn_id,
            job_id=request.job_id,
            trigger_id=trigger_id,
            is_stop=request.is_stop,
            poll_interval=self.poll_interval,
        )
        self.defer(trigger=trigger, method_name="execute_complete", timeout=self.execution_timeout)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> str:
        """Go on after the trigger has fired. Returns the path of the savepoint, or raises why there is none."""
        if "verdict" not in event:
            raise error_of_event(event)
        with self._connect() as client:
            return self._told(client, self._request_of(context), event["trigger_id"])

    def _told(self, client: FlinklikeClient, request: StreamRequest, trigger_id: str) -> str:
        location = client.run(savepoint_of(request, trigger_id))
        end = ", and the job has ended" if request.is_stop else ""
        self.log.info("Job %s: savepoint %s is complete%s", request.job_id, location, end)
        return location

    def _request_of(self, context: Context) -> StreamRequest:
        """Raises AirflowFailException for a job or a directory that is none."""
        life, key = life_of(context), TaskKey.of(context["ti"])
        asks: tuple[str | int, ...] = (key.dag_id, key.run_id, key.task_id, key.map_index)
        if life is not None:
            asks = (*asks, life.run_started, life.max_tries)
        try:
            request = self._request(parse_job_id(str(self.job or "").strip()), asks)
            check_directory(self.task_id, request.directory)
        except (InvalidInputError, PipelineError) as error:
            message = f"task {self.task_id!r}: job is {self.job!r}: {error}"
            raise AirflowFailException(message) from error
        return request

    def _hook(self) -> FlinklikeHook:
        return FlinklikeHook(self.flinklike_conn_id, first_contact=configured("first_contact_timeout"))

    def _connect(self) -> FlinklikeClient:
        return self._hook().get_conn()

    @staticmethod
    def _word(request: StreamRequest) -> str:
        return "stop with a savepoint" if request.is_stop else "savepoint"


class FlinklikeSavepointOperator(_SavepointTask):
    """Make a savepoint of a streaming job, which goes on. The XCom is the path of the savepoint.

    All tries of the task ask once: a retry finds the savepoint that an earlier try has asked for, and asks again only
    when it has failed. A clear of the task asks for another one.

    :param job: the id of the job, usually `{{ ti.xcom_pull(task_ids="stream") }}`
    :param directory: an absolute path, or a file URL, that all TaskManagers reach; default
        `execution.checkpointing.savepoint-dir` of the cluster
    :param poll_interval: seconds between two looks of the triggerer
    :param flinklike_conn_id: the connection to the cluster
    :param deferrable: wait in the triggerer instead of in a worker slot
    """

    template_fields: Collection[str] = ("job", "directory", "flinklike_conn_id")

    def __init__(self, *, job: str, directory: str = "", **kwargs: Any) -> None:
        super().__init__(job=job, **kwargs)
        self.directory = directory
        check_directory(self.task_id, directory)

    def _request(self, job_id: Any, asks: tuple[str | int, ...]) -> StreamRequest:
        return StreamRequest(job_id, asks, directory=self.directory or "")


class FlinklikeStopOperator(_SavepointTask):
    """Finish a streaming job with a savepoint. The XCom is the path of the savepoint.

    Each query ends between two batches; the task succeeds when the savepoint is complete and the job has ended. When
    there is no savepoint, the task fails and the job goes on. All tries of the task ask once, as those of
    FlinklikeSavepointOperator.

    :param job: the id of the job, usually `{{ ti.xcom_pull(task_ids="stream") }}`
    :param savepoint: the directory for the savepoint, an absolute path, or a file URL, that all TaskManagers reach;
        default `execution.checkpointing.savepoint-dir` of the cluster
    :param drain: each query reads what its sources have before it ends
    :param poll_interval: seconds between two looks of the triggerer
    :param flinklike_conn_id: the connection to the cluster
    :param deferrable: wait in the triggerer instead of in a worker slot
    """

    template_fields: Collection[str] = ("job", "savepoint", "flinklike_conn_id")

    def __init__(self, *, job: str, savepoint: str = "", drain: bool = False, **kwargs: Any) -> None:
        super().__init__(job=job, **kwargs)
        self.savepoint = savepoint
        self.drain = drain
        check_directory(self.task_id, savepoint)
        if drain not in {True, False}:
            message = f"task {self.task_id!r}: drain is {drain!r}, expected True or False"
            raise PipelineError(message)

    def _request(self, job_id: Any, asks: tuple[str | int, ...]) -> StreamRequest:
        return StreamRequest(job_id, asks, is_stop=True, drain=self.drain, directory=self.savepoint or "")
