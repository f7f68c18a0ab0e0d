"""From options to the users of slots and of Spark's JVM (R50), and which isolation cannot be enforced."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from runtime.common.errors import InvalidInputError
from runtime.config.configuration import Configuration
from runtime.config.options import taskmanager as tm
from runtime.config.options.security import SSL_REST_ENABLED
from runtime.config.spark_memory import has_own_jvms
from runtime.security.file_mask import UNCHANGED
from runtime.taskexecutor.containment.cgroups import CONTROLLERS
from runtime.taskexecutor.containment.users import SlotUsers, as_group
from runtime.taskexecutor.spark.account import SparkAccount
from runtime.taskexecutor.spark_protocol.settings import SparkSettings

logger = logging.getLogger(__name__)

NOT_ENFORCED = "not enforced between slots here: {}"
_ONE_JVM = (
    "what tasks that use Spark do to each other in its JVM, which is one for all of them "
    f"({tm.TENANCY.key}: namespace keeps namespaces apart)"
)
_MASK = "spark.hadoop.fs.permissions.umask-mode"


def slot_users(configuration: Configuration, slots: int) -> SlotUsers | None:
    """The users of slots; None, with a log line, when tasks run as the TaskManager's user. Raises InvalidInputError."""
    uids = configuration.get(tm.SLOT_UIDS)
    if uids is None:
        logger.info("%s", NOT_ENFORCED.format(f"users of their own ({tm.SLOT_UIDS.key} is not set)"))
        if os.geteuid() == 0:
            logger.warning(
                "tasks run as root here: each can read the cluster's token, key and certificates, and whatever else is "
                "on this host. Set %s, or start this TaskManager as another user",
                tm.SLOT_UIDS.key,
            )
        return None
    if not configuration.get(SSL_REST_ENABLED):
        logger.warning(
            "%s is false: a task that listens on the port of a JobManager which has ended on this host gets the tokens "
            "of its clients",
            SSL_REST_ENABLED.key,
        )
    has_spark = configuration.get(tm.SPARK_ENABLED)
    first, last = uids
    if last - first < slots + 1 + has_spark:
        message = (
            f"{tm.SLOT_UIDS.key}: {first}-{last} is too small for {slots} slots: it takes one number for all, one for "
            f"each slot, and {'two' if has_spark else 'one'} for each job that is here at once"
        )
        raise InvalidInputError(message)
    return SlotUsers(first, last, slots, configuration.get(tm.SLOT_PROCESSES_MAX), has_spark=has_spark)


def spark_accounts(configuration: Configuration, users: SlotUsers, umask: int) -> tuple[SparkAccount, ...]:
    """Those of Spark's JVMs beside slot users; none without Spark. `umask`: of tasks. Raises InvalidInputError."""
    if not users.has_spark:
        return ()
    if umask == UNCHANGED:
        umask = os.umask(0)
        os.umask(umask)
    logger.warning("%s", NOT_ENFORCED.format(_ONE_JVM))
    numbers = (users.first, users.last)
    names = configuration.get(tm.SPARK_USER)
    found = tuple(SparkAccount.named(name, numbers, users.jvm_gids, as_group(umask)) for name in names)
    if len({one.uid for one in found}) < len(found):
        message = f"{tm.SPARK_USER.key}: {', '.join(names)}: each JVM has a user of its own, and two of these are one"
        raise InvalidInputError(message)
    return found


def shared_account(
    configuration: Configuration, accounts: Sequence[SparkAccount]
) -> tuple[SparkAccount | None, Sequence[SparkAccount]]:
    """The account of the JVM that jobs share, and those of the ones that are started for jobs."""
    if has_own_jvms(configuration) or not accounts:
        return None, accounts
    return accounts[0], accounts[1:]


def beside_slot_users(settings: SparkSettings, users: SlotUsers, umask: int) -> SparkSettings:
    """Settings with which the JVM's files belong to its jobs too; Hadoop's umask is one of them."""
    conf = {_MASK: f"{umask:03o}", **settings.spark_conf}
    return replace(settings, spark_conf=conf, slot_gids=users.slot_gids)


def not_enforced(users: SlotUsers | None, controllers: Sequence[str]) -> tuple[str, ...]:
    """Names of the isolation that is missing, for REST and the command line. `controllers`: of the control groups."""
    wanted = {"users": users is not None, **{name: name in controllers for name in CONTROLLERS}}
    wanted["pids"] = wanted["pids"] or users is not None  # by RLIMIT_NPROC, which counts by user
    wanted["spark"] = users is None or not users.has_spark  # without slot users it is not worth a name of its own
    return tuple(name for name, is_there in wanted.items() if not is_there)


def shown_directories(directories: Sequence[Path], exchange: str | None, users: SlotUsers, spark: Path) -> list[Path]:
    """The directories that slots, and Spark's user, have to reach."""
    return [*directories, *([] if exchange is None else [Path(exchange)]), *([spark] if users.has_spark else [])]
