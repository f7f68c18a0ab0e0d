"""The shared driver: its JVM with a SparkContext, seen from the Spark host process.

What is private in Scala is used by the Java classes in `jvm/`, which check at start that it is there. Two contexts
stand side by side: the real one, which only `stop` reaches, and the one that all other code finds (SharedContext).
"""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.common.clock import Clock, Deadline
from runtime.common.deletion import delete_tree
from runtime.common.masking import SECRETS
from runtime.config.log_files import cut_large
from runtime.security.file_mask import PRIVATE_MODE
from runtime.taskexecutor.driver_jvm.command import PATIENT_COMPILER, command_line, jvm_environment, properties_text
from runtime.taskexecutor.driver_jvm.java import JavaRuntime
from runtime.taskexecutor.spark_host.jvm.loader import UnsupportedSparkError, kept_classes, load_classes
from runtime.taskexecutor.spark_host.jvm_end import JvmEnd, Witness, end_of_jvm, last_words, problem_in
from runtime.taskexecutor.spark_host.launch import GatewayAddress, JvmProcess, JvmStartError
from runtime.taskexecutor.spark_protocol import pages
from runtime.taskexecutor.spark_protocol import settings as spark_settings
from runtime.taskexecutor.spark_protocol.gateway import connect
from runtime.taskexecutor.spark_protocol.installed_spark import pyspark_version
from runtime.taskexecutor.spark_protocol.secret_file import read_secret
from runtime.taskexecutor.spark_protocol.settings import SparkSettings

logger = logging.getLogger(__name__)

HOST_TAG = "flinklike-host"

_END_SEEN_TIMEOUT = 5.0
"""A connection to the JVM breaks before the kernel has ended it."""

THREAD_DUMP_MAX = 512 << 10
"""Characters, which fit into a frame however they are escaped."""
_LOG_READ_MAX = 64 << 10
_HEAD_READ_MAX = 4 << 10


@dataclass(frozen=True, slots=True)
class ActiveJob:
    """One running Spark job, from the status store."""

    job_id: int
    tags: frozenset[str]
    stage_ids: tuple[int, ...]


class Driver:
    """A started driver. Methods may be called from any thread of the host."""

    def __init__(self, process: JvmProcess, spark: Any, scala_context: Any, settings: SparkSettings) -> None:
        self.process = process
        self.spark = spark
        self.settings = settings
        self.context: Any = spark.sparkContext
        self.java_context: Any = self.context._jsc  # noqa: SLF001 - pyspark has no public way to the Java side
        self.java_session: Any = spark._jsparkSession  # noqa: SLF001 - as above
        self.jvm: Any = self.context._jvm  # noqa: SLF001 - as above
        self.conf: dict[str, str] = dict(self.context.getConf().getAll())
        self._scala_context: Any = scala_context
        self._shared_context: Any = self.jvm.org.apache.spark.SharedContext
        self._mapper = self._json_mapper()

    def _json_mapper(self) -> Any:
        # The whole answer of the status store crosses py4j as one string; field by field it is thousands of calls.
        mapper = self.jvm.com.fasterxml.jackson.databind.ObjectMapper()
        module = self.jvm.java.lang.Class.forName("com.fasterxml.jackson.module.scala.DefaultScalaModule")
        mapper.registerModule(module.getDeclaredConstructor(None).newInstance(None))
        return mapper

    def problem(self) -> str:
        """The reason for which the SparkContext runs no jobs any more; empty as long as it does."""
        return str(self._shared_context.problemOf(self._scala_context) or "")

    def bind_thread(self, tag: str, pool: str) -> None:
        """Tag everything that this thread starts."""
        self._scala_context.addJobTag(tag)
        self._scala_context.setInterruptOnCancel(True)
        self._scala_context.setLocalProperty("spark.scheduler.pool", pool)

    def open_session(self, tag: str, script_words: str, properties: Mapping[str, str]) -> Any:
        """Open a SlotSession of `jvm/`, in one call."""
        slot_session = self.jvm.org.apache.spark.SlotSession
        return slot_session.open(self._scala_context, self.java_session, tag, script_words, dict(properties))

    def add_pool(self, name: str, weight: int) -> None:
        """A FAIR pool with this weight, once: Spark reads others from its file when it starts, and removes none."""
        root = self._scala_context.taskScheduler().rootPool()
        if root.getSchedulableByName(name) is None:
            scheduler = self.jvm.org.apache.spark.scheduler
            root.addSchedulable(scheduler.Pool(name, scheduler.SchedulingMode.FIFO(), 0, weight))

    def note_state(self) -> None:
        """Note the parts of the JVM that jobs share: they have to stay as they are now (R45)."""
        if self.settings.is_of_one_job:
            return
        self.jvm.org.apache.spark.JvmState.note(self._scala_context, self.java_session)

    def put_back(self, patience: float) -> str:
        """The outcome of a change that waits for other sessions to end, in the words of `jvm/JvmState.java` (R45)."""
        return str(self.jvm.org.apache.spark.JvmState.putBack(int(patience * 1000)))

    def forget_session(self, session: Any) -> None:
        """Let the JVM free a SlotSession now: its proxy here is part of a cycle that Python may find much later."""
        self.context._gateway.detach(session)  # noqa: SLF001 - pyspark has no public way to it

    def forget_job(self, job_id: str) -> None:
        """The job has left: its databases and tables are found no more (R22), and its own Python workers end (R25)."""
        try:
            self.jvm.org.apache.spark.SlotCatalogs.forget(job_id)
        finally:
            self.jvm.org.apache.spark.WorkerPools.forgetJob(job_id)

    def figures(self) -> dict[str, int]:
        """The figures that must not grow with the number of jobs, after a garbage collection."""
        found = self.jvm.org.apache.spark.Figures.read(self._scala_context)
        return {str(name): int(found[name]) for name in found}

    def jvm_figures(self) -> dict[str, int]:
        """Heap and garbage collection, without a collection."""
        found = self.jvm.org.apache.spark.JvmFigures.read()
        return {str(name): int(found[name]) for name in found}

    def thread_dump(self) -> str:
        """The stacks of the JVM's threads, in one call, as `jstack` prints them."""
        return str(self.jvm.org.apache.spark.ThreadDump.read(THREAD_DUMP_MAX))

    def work_of(self, tag: str, since: int, until: int, settle_millis: int, *, has_plans: bool) -> str:
        """Jobs, stages and queries of a session between these times, as JSON, in one call (`jvm/SlotStages.java`).

        `until` is 0 while they go on; else the store gets so many milliseconds to learn of their end.
        """
        read = self.jvm.org.apache.spark.SlotStages.read
        return str(read(self._scala_context, self.java_session, tag, since, until, settle_millis, has_plans))

    def streams(self) -> list[dict[str, Any]]:
        """The streaming queries of tasks that have not ended, in one call (`jvm/SlotStreams.java`)."""
        told = str(self.jvm.org.apache.spark.SlotStreams.read())
        found: list[dict[str, Any]] = json.loads(told) if told else []
        return found

    def positions_of(self, tag: str) -> str:
        """The last committed batches of a session's streaming queries, as JSON, in one call."""
        return str(self.jvm.org.apache.spark.SlotSession.positions(tag))

    def look_at_stream(self, tag: str, hold: str, *, drains: bool) -> str:
        """How far a session's query is, and with its end for a hold, as JSON, in one call (`jvm/HeldQueries.java`)."""
        return str(self.jvm.org.apache.spark.SlotSession.look(tag, hold, drains))

    def look_at_script(self, tag: str, hold: str) -> str:
        """The same of all queries that a session's script starts (`jvm/ScriptQueries.java`)."""
        return str(self.jvm.org.apache.spark.ScriptQueries.look(tag, hold))

    def page(self, target: str, prefix: str) -> str:
        """Spark's own page at a path, as `jvm/SparkPages.java` answers, in base64 (R58)."""
        answer = self.jvm.org.apache.spark.SparkPages.answer
        told = answer(
            self._scala_context,
            self.java_session,
            target,
            prefix,
            SECRETS,
            pages.BODY_BYTES_MAX,
            pages.PACKED_BYTES_MAX,
            pages.ANSWER_MILLIS_MAX,
        )
        return base64.b64encode(bytes(told)).decode("ascii")

    def forget_pages(self) -> None:
        """Spark's own pages give back their memory when nobody has looked at them for a while."""
        self.jvm.org.apache.spark.SparkPages.forgetUnused(pages.IDLE_MILLIS)

    def trim_heap(self) -> None:
        """Give the operating system what the heap does not need; a pause of a fifth of a second for all sessions."""
        self.jvm.org.apache.spark.IdleHeap.trim()

    def stop(self) -> None:
        """Stop the real context: event log written, executors ended."""
        self._scala_context.stop()

    def cancel_job(self, job_id: int, reason: str) -> None:
        """Cancel one job."""
        self._scala_context.cancelJob(job_id, reason)

    def active_jobs(self) -> list[ActiveJob]:
        """All running jobs, in one call."""
        running = self.jvm.java.util.Collections.singletonList(self.jvm.org.apache.spark.JobExecutionStatus.RUNNING)
        jobs = json.loads(self._mapper.writeValueAsString(self._scala_context.statusStore().jobsList(running)))
        return [ActiveJob(job["jobId"], frozenset(job["jobTags"]), tuple(job["stageIds"])) for job in jobs]

    def active_stages(self) -> list[dict[str, Any]]:
        """All running stages with their counters, in one call."""
        stages: list[dict[str, Any]] = json.loads(
            self._mapper.writeValueAsString(self._scala_context.statusStore().activeStages())
        )
        return stages


def prepare_directories(settings: SparkSettings) -> None:
    """Make what the JVM needs on disk; what an earlier life left in them goes."""
    for place in (
        spark_settings.local_directory,
        spark_settings.sessions_directory,
        spark_settings.temporary_directory,
    ):
        directory = place(settings)
        delete_tree(directory)
        directory.mkdir(parents=True, mode=0o700)
    if settings.slot_gids:  # R50: slots go through to their own, and see no other
        spark_settings.sessions_directory(settings).chmod(0o711)
    settings.log_directory.mkdir(parents=True, exist_ok=True)
    settings.cds_directory.mkdir(parents=True, exist_ok=True, mode=PRIVATE_MODE)
    spark_settings.allocation_file(settings).write_text(spark_settings.allocations(settings.slots))


def start_driver(
    settings: SparkSettings,
    java: JavaRuntime,
    archive_options: Sequence[str],
    clock: Clock,
    deadline: Deadline,
    *,
    has_own_jar: bool = True,
) -> Driver:
    """Launch the JVM and make its SparkContext. Raises JvmStartError. Call it while single-threaded, once a life.

    `has_own_jar`: classes of ours come by the class path, which is faster than one by one.
    """
    secret = read_secret(Path(settings.secret_file)) if settings.secret_file else ""
    conf = spark_settings.effective_conf(settings)
    properties_file = settings.work_directory / "spark.properties"
    _write_private(properties_file, properties_text(conf))
    connection_file = settings.work_directory / "gateway"
    connection_file.unlink(missing_ok=True)
    witness_file(settings).unlink(missing_ok=True)
    log_file = settings.log_file("jvm")
    cut_large([log_file])
    jar = kept_classes(settings.cds_directory, pyspark_version()) if has_own_jar else None
    command = command_line(
        java,
        directories=settings.configuration_directories,
        conf=conf,
        properties_file=properties_file,
        archive_options=(
            *archive_options,
            *(PATIENT_COMPILER if settings.is_on_demand else ()),
            f"-Djava.io.tmpdir={spark_settings.temporary_directory(settings)}",
            f"-XX:ErrorFile={str(spark_settings.crash_file(settings)).replace('%', '%%')}",
            # R50: the home of an account may be anywhere, or nowhere.
            *([f"-Duser.home={settings.work_directory}"] if settings.slot_gids else ()),
        ),
        jars=[jar] if jar else (),
    )
    environment = jvm_environment(os.environ, connection_file=connection_file, local_host=settings.driver_host)
    process = JvmProcess(command, environment, log_file=log_file, cwd=settings.work_directory)
    import_pyspark()  # while the JVM starts
    try:
        address = process.wait_gateway(connection_file, clock, deadline)
    except JvmStartError:
        process.kill()
        raise
    connection_file.unlink()
    try:
        spark, scala_context = _begin(address, settings, conf, secret, has_own_jar=jar is not None)
    except Exception as error:
        code = process.wait(0 if _is_of_java(error) else _END_SEEN_TIMEOUT)
        if code is None:
            if isinstance(error, UnsupportedSparkError):
                process.kill()
            raise  # what Java has thrown is still read from the JVM
        message = f"the JVM ended with code {code} while Spark started; log: {log_file}{process.log_tail()}"
        raise JvmStartError(message, code) from error
    return Driver(process, spark, scala_context, settings)


def _begin(
    address: GatewayAddress, settings: SparkSettings, conf: dict[str, str], secret: str, *, has_own_jar: bool
) -> tuple[Any, Any]:
    """Our classes, and the SparkContext, in a JVM that has its gateway."""
    gateway = connect(address.port, address.secret)
    load_classes(gateway, settings.cds_directory, pyspark_version(), are_there=has_own_jar)
    gateway.jvm.org.apache.hadoop.fs.SlotLocalFiles.install()
    gateway.jvm.org.apache.hadoop.fs.SlotFileSystems.install()
    gateway.jvm.org.apache.spark.SlotContext.setUiAddress(settings.ui_address)
    if settings.has_pages:
        # It sets a property of the system, which would look like the deed of a job when pages are shown first (R45).
        gateway.jvm.java.lang.Class.forName("org.sparkproject.jetty.util.Jetty")
    gateway.jvm.org.apache.spark.ExitWitness.install(str(witness_file(settings)))
    if secret:
        _give_secret(gateway, secret)
    return _start_context(gateway, conf)


def _is_of_java(error: Exception) -> bool:
    """True for what Java has thrown. py4j has several errors for a JVM that does not answer."""
    cause = error.__cause__ if isinstance(error, UnsupportedSparkError) else error
    return type(cause).__name__ == "Py4JJavaError"


def import_pyspark() -> None:
    """Load what `_start_context` needs, which takes a second."""
    import pyspark.sql  # noqa: F401 - it is there from now on


def witness_file(settings: SparkSettings) -> Path:
    """Where the JVM writes which session's call made it exit."""
    return settings.work_directory / "exit-witness"


def end_of(driver: Driver, otherwise: str, code: int | None) -> JvmEnd:
    """The end of the driver's JVM, and the session that caused it (R23). `otherwise`: the first sign of the end.

    Raises nothing: the end is reported also when its cause cannot be found out.
    """
    try:
        return _diagnosis(driver, otherwise, code)
    except Exception as error:
        logger.exception("how the JVM has ended cannot be found out")
        return JvmEnd(f"{otherwise}; how and for whom is not known, since what it has left cannot be read: {error}")


def _diagnosis(driver: Driver, otherwise: str, code: int | None) -> JvmEnd:
    witness, report = witness_file(driver.settings), spark_settings.crash_file(driver.settings)
    crash = problem_in(_head(report), driver.process.pid)
    return end_of_jvm(
        otherwise,
        code,
        Witness.parse(_head(witness)),
        last_words(driver.process.last_output(_LOG_READ_MAX)),
        f"{crash} (its report: {report})" if crash else "",
    )


def _head(file_of_jvm: Path) -> str:
    try:
        with file_of_jvm.open(encoding="utf-8", errors="replace") as file:
            return file.read(_HEAD_READ_MAX)
    except FileNotFoundError:
        return ""


def _give_secret(gateway: Any, secret: str) -> None:
    """R44: Spark looks for its secret in the credentials of the JVM's user first, and shows these to no user."""
    jvm = gateway.jvm
    credentials = jvm.org.apache.hadoop.security.Credentials()
    credentials.addSecretKey(jvm.org.apache.spark.SecurityManager.SECRET_LOOKUP_KEY(), secret.encode())
    jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().addCredentials(credentials)


def _start_context(gateway: Any, conf: dict[str, str]) -> tuple[Any, Any]:
    """The session that others are made from, over a context that no session can stop, and the real context."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    spark_conf = SparkConf(loadDefaults=False, _jvm=gateway.jvm)
    spark_conf.setAll(sorted(conf.items()))
    context = SparkContext(gateway=gateway, conf=spark_conf)
    scala_context = context._jsc.sc()  # noqa: SLF001 - pyspark has no public way to the Java side
    shared = gateway.jvm.org.apache.spark.SharedContext.plant(scala_context)
    context._jsc = gateway.jvm.JavaSparkContext(shared)  # noqa: SLF001 - as above
    if problems := str(gateway.jvm.org.apache.spark.EarlyClasses.end()):
        logger.warning("not prepared, the first query will be slower: %s", problems)
    session = SparkSession(context)
    gateway.jvm.org.apache.spark.SlotScripts.install(session._jsparkSession.extensions())  # noqa: SLF001 - as above
    return session, scala_context


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
