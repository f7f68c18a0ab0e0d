"""The commands. Each prints a table for people or, with --json, one JSON document for programs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from airflow_flinklike.api.explain import explain_graph
from airflow_flinklike.cli import processes, render
from airflow_flinklike.cli.arguments import Address, AsJson, Job, TokenFile, job_id_of, show
from airflow_flinklike.cli.attached import ATTACHED_RETRY_SECONDS, Shown, failed_line, follow, one_sentence
from airflow_flinklike.cli.certificates import certificates
from airflow_flinklike.cli.checkpoints import checkpoints
from airflow_flinklike.cli.connection import connect
from airflow_flinklike.cli.dashboard import open_dashboard
from airflow_flinklike.cli.delegation_tokens import delegation_tokens
from airflow_flinklike.cli.events import events
from airflow_flinklike.cli.explained import names_job, plan_of, plan_text
from airflow_flinklike.cli.history import history
from airflow_flinklike.cli.job_arguments import (
    AllowNonRestoredState,
    CheckpointName,
    ClaimModeText,
    FromSavepoint,
    Jars,
    Labels,
    Params,
    PyFiles,
    Queue,
    Quiet,
    Resources,
    RestartStrategyText,
    Secrets,
    StatePartitions,
    Streaming,
    UserFailuresText,
)
from airflow_flinklike.cli.logs import LogFollower, parse_attempt
from airflow_flinklike.cli.migrate import migrate
from airflow_flinklike.cli.process_views import log_level, process_log, thread_dump
from airflow_flinklike.cli.queues import queues
from airflow_flinklike.cli.rescales import rescale
from airflow_flinklike.cli.savepoint_group import savepoints, stop
from airflow_flinklike.cli.spark_submit import as_conf_options
from airflow_flinklike.cli.stream_queries import streams_of, streams_table
from airflow_flinklike.cli.streams import lasting_streams
from airflow_flinklike.cli.targets import (
    ScriptOptions,
    is_script,
    load_job,
    parse_params,
    with_configuration,
    with_labels,
    with_restarts,
    with_savepoint,
)
from airflow_flinklike.cli.tokens import tokens
from airflow_flinklike.cli.top import top
from airflow_flinklike.cli.words import notes_on_stderr, words_of_options
from airflow_flinklike.client import FlinklikeClient, QueuePlace, new_job_id
from airflow_flinklike.client.token import NO_TOKEN
from airflow_flinklike.exceptions import JobNotFoundError
from runtime.common.ids import JobId, parse_job_id
from runtime.common.restart_strategies import in_words
from runtime.common.shares import PRIORITY_MAX, PRIORITY_MIN
from runtime.common.states import JobStatus
from runtime.common.version import VERSION

app = typer.Typer(
    name="flinklike",
    help="Run and watch PySpark jobs on a session cluster.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_TARGET = "module:pipeline, file.py:pipeline, a script.py, an app.jar, or a JobGraph as .json"

app.add_typer(processes.task_managers)
app.add_typer(processes.job_masters)
app.add_typer(processes.jobs)
app.add_typer(certificates)
app.add_typer(tokens)
app.add_typer(savepoints)
app.command("delegation-tokens")(delegation_tokens)
app.command()(migrate)
app.command("open")(open_dashboard)
app.command()(history)
app.command()(events)
app.command()(queues)
app.command()(checkpoints)
app.command()(stop)
app.command()(rescale)
app.command()(top)
app.command("process-log")(process_log)
app.command("thread-dump")(thread_dump)
app.command("log-level")(log_level)


def _version(value: bool) -> None:
    if value:
        sys.stdout.write(f"flinklike {VERSION}\n")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
    ca: Annotated[str, typer.Option(help="PEM file of the CA of REST, where that is https (or FLINKLIKE_CA)")] = "",
    cert: Annotated[
        str, typer.Option(help="PEM file of our certificate, where REST asks for one (or FLINKLIKE_CERT)")
    ] = "",
    key: Annotated[str, typer.Option(help="PEM file of its key, unless it is in the same (or FLINKLIKE_KEY)")] = "",
    no_token: Annotated[
        bool, typer.Option("--no-token", help="show no token, so that the certificate signs in (or FLINKLIKE_NO_TOKEN)")
    ] = False,
) -> None:
    del version
    for name, given in (("CA", ca), ("CERT", cert), ("KEY", key)):
        if given:
            os.environ[f"FLINKLIKE_{name}"] = given
    if no_token:
        os.environ[NO_TOKEN] = "true"
    if context.invoked_subcommand is None:
        sys.stderr.write("flinklike: name a command (see --help)\n")
        raise typer.Exit(1)


_WHO_AND_WHERE = {"--token-file", "--namespace", "--address"}


class _RunCommand(TyperCommand):
    """Options behind a script are arguments of the script; behind any other target they are flinklike's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Find the target, then parse by its kind."""
        with_value = {option for one in self.params if not getattr(one, "is_flag", True) for option in one.opts}
        args = as_conf_options(args, frozenset(with_value))
        ctx.allow_interspersed_args = False
        found, _, _ = self.make_parser(ctx).parse_args(list(args))
        ctx.allow_interspersed_args = not is_script(str(found.get("target") or ""))
        return super().parse_args(ctx, args)


def _tell_of_misplaced(target: str, args: list[str]) -> None:
    """Warn of such options behind a script: a user who meant flinklike's submits to another cluster or namespace."""
    found = sorted({arg.partition("=")[0] for arg in args} & _WHO_AND_WHERE) if is_script(target) else []
    if found:
        where = f"behind {Path(target).name} is for the script: flinklike's options stand before it"
        sys.stderr.write(f"note: {', '.join(found)} {where}\n")


Configuration = Annotated[
    list[str] | None,
    typer.Option("-D", help="option that the job has for itself, such as execution.checkpointing.interval=10s"),
]


@app.command(cls=_RunCommand)
def run(
    target: Annotated[str, typer.Argument(help=_TARGET)],
    args: Annotated[list[str] | None, typer.Argument(help="arguments of a script")] = None,
    parallelism: Annotated[int | None, typer.Option("-p", "--parallelism", min=1, help="default parallelism")] = None,
    param: Params = None,
    job_id: Annotated[str | None, typer.Option(help="choose the id: submitting again is harmless")] = None,
    detached: Annotated[bool, typer.Option("-d", "--detached", help="submit and return")] = False,
    quiet: Quiet = False,
    py_files: PyFiles = None,
    files: Annotated[list[str] | None, typer.Option(help="comma-separated files for the working directory")] = None,
    archives: Annotated[list[str] | None, typer.Option(help="comma-separated archives, x.zip#alias")] = None,
    jars: Jars = None,
    main_class: Annotated[str, typer.Option("--class", help="main class of an application in a jar")] = "",
    conf: Annotated[list[str] | None, typer.Option(help="Spark conf key=value")] = None,
    name: Annotated[str, typer.Option(help="name of the job")] = "",
    secret: Secrets = None,
    resources: Resources = None,
    label: Labels = None,
    streaming: Streaming = False,
    checkpoint_name: CheckpointName = "",
    restart_strategy: RestartStrategyText = "",
    user_failures: UserFailuresText = "",
    from_savepoint: FromSavepoint = "",
    allow_non_restored_state: AllowNonRestoredState = False,
    claim_mode: ClaimModeText = "",
    state_partitions: StatePartitions = None,
    configuration: Configuration = None,
    namespace: Annotated[str, typer.Option(help="whose job it is; without it the namespace of the token")] = "",
    queue: Queue = None,
    priority: Annotated[int, typer.Option(min=PRIORITY_MIN, max=PRIORITY_MAX, help="in its queue, highest first")] = 0,
    address: Address = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Submit a job, show its output, and wait for its end. Exit code 1 when it fails; the last line says why.

    Exit code 4 when the cluster does not accept the token any more: the job runs on.
    The tasks' stdout goes to stdout; their stderr, their log and progress go to stderr. Options stand before a script,
    as with spark-submit: everything behind the script is an argument of it. So do spark-submit's --properties-file,
    --packages, --repositories, --driver-memory and the like, which stand for keys of --conf.
    """
    _tell_of_misplaced(target, args or [])
    given = [one or () for one in (args, py_files, files, archives, jars, conf, secret, resources)]
    options = ScriptOptions(main_class, name, *given, is_streaming=streaming, checkpoint_name=checkpoint_name)
    with words_of_options(is_script=is_script(target)), notes_on_stderr(is_quiet=quiet):
        loaded = load_job(target, options, params=parse_params(param or []), parallelism=parallelism)
        loaded = with_configuration(with_restarts(loaded, restart_strategy, user_failures), configuration or ())
        start = (from_savepoint, claim_mode, state_partitions)
        loaded = with_savepoint(with_labels(loaded, label), *start, allow_non_restored_state=allow_non_restored_state)
    chosen = parse_job_id(job_id) if job_id else new_job_id()
    with connect(address, token_file) as client:
        origin = {"client": "flinklike run", "namespace": namespace, "traceparent": os.environ.get("TRACEPARENT", "")}
        place = QueuePlace(queue or "", priority)
        with words_of_options(is_script=is_script(target)):
            submitted = client.submit(loaded.graph, job_id=chosen, contents=loaded.uploads, place=place, **origin)
        sentence = f"Job has been submitted with JobID {chosen}" + ("" if submitted.is_new else " before")
        # From here on the job runs on, also without a JobManager or a reader of this output.
        with lasting_streams():
            for warning in submitted.warnings:
                sys.stderr.write(f"note: {warning}\n")
            if detached:
                show({"job_id": chosen, "is_new": submitted.is_new}, sentence, as_json=as_json)
                return
            client.retry_for = ATTACHED_RETRY_SECONDS
            errors = render.console(stderr=True)
            if not quiet:
                errors.print(sentence)
            shown = Shown(is_quiet=quiet, as_json=as_json, script=Path(target) if is_script(target) else None)
            code = follow(client, chosen, render.console(), errors, shown)
    raise typer.Exit(code)


@app.command("list")
def list_jobs(
    state: Annotated[
        list[JobStatus] | None, typer.Option(case_sensitive=False, help="only jobs in this state (more than once)")
    ] = None,
    name: Annotated[str, typer.Option(help="only jobs with this in their name, or whose id begins so")] = "",
    namespace: Annotated[str, typer.Option(help="only jobs of this namespace")] = "",
    address: Address = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """List all jobs of the cluster, newest first."""
    with connect(address, token_file) as client:
        jobs = client.get("/jobs/overview", **({"name": name} if name else {}))["jobs"]
    jobs = sorted(jobs, key=lambda job: (-job["start-time"], job["jid"]))
    if state:
        wanted = {one.value for one in state}
        jobs = [job for job in jobs if job["state"] in wanted]
    if namespace:
        jobs = [job for job in jobs if job.get("namespace") == namespace]
    show({"jobs": jobs}, render.jobs_table(jobs) if jobs else "No jobs.", as_json=as_json)


@app.command()
def info(job: Job, address: Address = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Show a job with its vertices, failures and result."""
    job_id = job_id_of(job)
    with connect(address, token_file) as client:
        details = client.get(f"/jobs/{job_id}")
        config = client.get(f"/jobs/{job_id}/config")["execution-config"]
        exceptions = client.get(f"/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"]
        streams = streams_of(client, details)
        result = client.get(f"/jobs/{job_id}/execution-result").get("job-execution-result")
        accumulators = _accumulators(client, job_id)
    if as_json:
        document = {**details, "execution-config": config, "exceptions": exceptions, "execution-result": result}
        document |= {"streams": streams} if streams else {}
        sys.stdout.write(json.dumps({**document, "accumulators": accumulators}) + "\n")
        return
    console = render.console()
    if line := _failed_line(details, result or {}):
        console.print(line, style="red")
    console.print(f"{details['name']}  {details['jid']}")
    reason = details.get("pending-reason", "")
    console.print(render.state_text(details["state"]), render.duration_text(details["duration"]), reason)
    for line in render.ownership_lines(details):
        console.print(line)
    console.print(in_words(config["restart-strategy"], config.get("user-failures", "")))
    console.print(render.vertices_table(details))
    for line in render.decision_lines(details):
        console.print(line)
    if accumulators["user-task-accumulators"]:
        console.print(render.accumulators_table(accumulators))
    if streams:
        console.print(streams_table(streams, details["now"]))
    for entry in exceptions:
        console.print(f"\n{render.failure_title(entry)}", style="red")
        console.print(entry["stacktrace"])
    if result and result.get("result") is not None:
        console.print(render.value_text(result["result"]))


def _failed_line(details: dict[str, Any], result: dict[str, Any]) -> str:
    failure = result.get("failure-cause") if details["state"] == JobStatus.FAILED.value else None
    spent = result.get("net-runtime", details["duration"])
    return failed_line(details["jid"], spent, one_sentence(failure)) if failure else ""


def _accumulators(client: FlinklikeClient, job_id: JobId) -> dict[str, Any]:
    """What the job's code has counted; nothing in a cluster of an earlier release, which has no such path."""
    try:
        return dict(client.get(f"/jobs/{job_id}/accumulators"))
    except JobNotFoundError:
        return {"user-task-accumulators": [], "left-out": 0}


@app.command()
def status(job: Job, address: Address = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Show the state of a job."""
    with connect(address, token_file) as client:
        found = client.status(job_id_of(job))
    body = {"job_id": found.job_id, "status": found.status.value, "pending_reason": found.pending_reason}
    show(body, f"{found.status.value} {found.pending_reason}".rstrip(), as_json=as_json)


@app.command()
def logs(
    job: Job,
    follow_: Annotated[bool, typer.Option("-f", "--follow", help="go on until the job has ended")] = False,
    vertex: Annotated[str | None, typer.Option(help="name or id of one vertex")] = None,
    subtask: Annotated[int | None, typer.Option(min=0, help="index of one subtask")] = None,
    attempt: Annotated[str, typer.Option(metavar="N|all", help="one attempt of each subtask, from 0; or all")] = "all",
    stream: Annotated[str, typer.Option(help="stdout, stderr, log, or several with commas")] = "stdout,stderr,log",
    address: Address = None,
    token_file: TokenFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document a line")] = False,
) -> None:
    """Show the output of a job's tasks: of all attempts, earlier ones of a subtask first, or of one."""
    job_id = job_id_of(job)
    streams = [one.strip() for one in stream.split(",") if one.strip()]
    chosen = parse_attempt(attempt)
    with connect(address, token_file) as client:
        LogFollower(client, job_id, streams, vertex, subtask, chosen, as_json).run(follow=follow_)


@app.command()
def cancel(job: Job, address: Address = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Cancel a job. Returns when the request is durable. Exit code 1 when the job has ended otherwise."""
    job_id = job_id_of(job)
    with connect(address, token_file) as client:
        was_canceled = client.status(job_id).status is JobStatus.CANCELED
        client.cancel(job_id)
    sentence = f"Job {job_id} was CANCELED before." if was_canceled else f"Cancelling job {job_id}."
    show({"job_id": job_id, "cancelled": True}, sentence, as_json=as_json)


@app.command()
def explain(
    target: Annotated[str, typer.Argument(help=f"{_TARGET}; or the id of a job of the cluster")],
    parallelism: Annotated[int | None, typer.Option("-p", "--parallelism", min=1)] = None,
    param: Annotated[list[str] | None, typer.Option("--param")] = None,
    address: Address = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the chains, regions and slots of a job, without submitting it; of a job of the cluster what was chosen.

    Only the id of a job takes --address and --token-file.
    """
    if names_job(target):
        if parallelism is not None or param:
            message = f"{target} is a job of the cluster, which has its --parallelism and --param already"
            raise typer.BadParameter(message)
        with connect(address, token_file) as client:
            details = client.get(f"/jobs/{target}")
        show(plan_of(details), plan_text(details), as_json=as_json)
        return
    graph = load_job(target, ScriptOptions(), params=parse_params(param or []), parallelism=parallelism).graph
    explanation = explain_graph(graph)
    show(explanation.to_dict(), explanation.to_text().rstrip(), as_json=as_json)
