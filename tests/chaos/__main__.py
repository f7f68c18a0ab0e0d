"""`python -m tests.chaos --minutes M --every S --seed N`: exit code 1 when a promise was broken."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom

from tests.chaos.fate import CONTROL_PLANE, FaultKind
from tests.chaos.jobs import KINDS, SPARK_KINDS
from tests.chaos.judge import judge
from tests.chaos.ledger import read
from tests.chaos.members import ChaosCluster
from tests.chaos.report import ChaosReport, count_faults, recoveries
from tests.chaos.run import ChaosRun, Settings
from tests.kit.spark.spark_box import ONE_COMPILER
from tests.kit.spark.standalone import standalone

OPTIONS = {
    "taskmanager.numberOfTaskSlots": "8",
    "taskmanager.isolation-timeout": "20 s",
    "restart-strategy.type": "exponential-delay",
    "restart-strategy.exponential-delay.initial-backoff": "300 ms",
    "restart-strategy.exponential-delay.max-backoff": "2 s",
}
WITHOUT_SPARK = {"taskmanager.spark.enabled": "false"}
WITH_SPARK = {
    "taskmanager.numberOfTaskSlots": "6",
    "taskmanager.memory.task.size": "1920 mb",
    "taskmanager.memory.spark.size": "768 mb",
    "taskmanager.spark.warm-up.count": "2",
    "taskmanager.spark.class-archive": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": ONE_COMPILER,
}
ON_STANDALONE = {
    "taskmanager.spark.allow-unauthenticated": "true",
    "spark.cores.max": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": ONE_COMPILER,
}
STANDALONE = "standalone"
FAULTS = {"all": frozenset(FaultKind), "control-plane": CONTROL_PLANE}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line. Exits with a usage message when it names something unknown."""
    parser = argparse.ArgumentParser(prog="chaos.sh", description=__doc__, allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=3.0, help="of faults; healing comes after them (3)")
    parser.add_argument("--every", type=float, default=8.0, help="seconds between faults, on average (8)")
    parser.add_argument("--seed", type=int, help="decides faults and jobs; drawn and told when it is not given")
    parser.add_argument("--clients", type=int, default=6, help="that submit jobs, one after the other (6)")
    parser.add_argument("--faults", default="all", help=f"{', '.join([*FAULTS, *(k.value for k in FaultKind)])}")
    parser.add_argument("--jobs", default=",".join(KINDS), help=f"kinds of jobs, out of {', '.join(KINDS)}")
    parser.add_argument("--no-spark", action="store_true", help="TaskManagers without Spark, and no jobs that use it")
    parser.add_argument(
        "--spark-master", choices=["local", STANDALONE], default="local", help=f"{STANDALONE}: a master and a worker"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report as JSON")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="copy ledger and logs there when a promise was broken")
    parser.add_argument("--judge", type=Path, metavar="LEDGER", help="run nothing, judge a ledger that was kept")
    given = parser.parse_args(arguments)
    try:
        given.faults = kinds_of(given.faults)
    except ValueError as error:
        parser.error(f"--faults: {error}")
    given.jobs = [kind for kind in given.jobs.split(",") if kind not in SPARK_KINDS or not given.no_spark]
    if unknown := set(given.jobs) - set(KINDS):
        parser.error(f"--jobs: no kind {', '.join(sorted(unknown))}")
    return given


def kinds_of(text: str) -> list[FaultKind]:
    """Kinds by their names, or by the name of a set of them. Raises ValueError."""
    named = [FAULTS[one] if one in FAULTS else {FaultKind(one)} for one in text.split(",")]
    return [kind for kind in FaultKind if any(kind in some for some in named)]


def run(settings: Settings, options: dict[str, str], *, class_archive: Path | None, keep: Path | None) -> ChaosReport:
    """A cluster of its own, one run on it."""
    directory = Path(tempfile.mkdtemp(prefix="flinklike-chaos-"))
    try:
        with ChaosCluster(options, class_archive=class_archive) as cluster:
            report = asyncio.run(_run(cluster, settings, directory))
            if keep is not None and not report.is_clean:
                shutil.copytree(cluster.run / "run" / "log", keep / "log", dirs_exist_ok=True)
                shutil.copy(directory / "ledger", keep / "ledger")
            return report
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run_on_standalone(
    settings: Settings, options: dict[str, str], *, class_archive: Path | None, keep: Path | None
) -> ChaosReport:
    """The same, with a Spark master and a worker beside it that outlive every fault; executors come and go."""
    directory = Path(tempfile.mkdtemp(prefix="flinklike-standalone-"))
    try:
        # TaskManagers that are frozen keep their cores, and those that replace them want some too.
        with standalone(directory, cores=8, memory="6g") as master:
            own = {**options, **ON_STANDALONE, "spark.master": master}
            return run(settings, own, class_archive=class_archive, keep=keep)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _run(cluster: ChaosCluster, settings: Settings, directory: Path) -> ChaosReport:
    return await ChaosRun(cluster, settings, directory, _say).run()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _judge_only(path: Path) -> ChaosReport:
    lines = read(path)
    return ChaosReport({"ledger": path.name}, judge(lines), count_faults(lines), recoveries(lines))


def main(arguments: Sequence[str]) -> int:
    """0 when nothing was lost, doubled, or restarted by a fault of the control plane."""
    if arguments[:1] == ["containers"]:
        from tests.chaos import containers

        return containers.main(arguments[1:])
    given = parse(arguments)
    if given.judge is not None:
        report = _judge_only(given.judge)
    else:
        seed = SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
        without = SPARK_KINDS.isdisjoint(given.jobs)
        kinds = [kind for kind in given.faults if kind is not FaultKind.SPARK_KILL or not without]
        runs_once = given.spark_master == STANDALONE and not without
        settings = Settings(60 * given.minutes, given.every, seed, given.clients, kinds, given.jobs, runs_once)
        _say(f"seed {seed}; starting a cluster of its own ...")
        options = {**OPTIONS, **(WITHOUT_SPARK if without else WITH_SPARK)}
        report = (run_on_standalone if runs_once else run)(settings, options, class_archive=None, keep=given.keep)
    _say(report.table())
    if given.json is not None:
        given.json.write_text(report.to_json() + "\n", encoding="utf-8")
    return 0 if report.is_clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
