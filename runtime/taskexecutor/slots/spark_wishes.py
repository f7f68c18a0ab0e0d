"""The static Spark conf of the job that an attempt belongs to."""

from __future__ import annotations

import json

from runtime.common.spark_conf import static_conf
from runtime.common.spark_environments import SparkWish, with_jars
from runtime.jobgraph.graph import JarCode, ScriptCode, parse_operators
from runtime.taskexecutor.slots.work import SlotWork

_NO_CONF = frozenset({b"", b"{}"})
_OF_SCRIPTS = b'"builder_conf"'
_OF_JARS = b'"type":"jar"'


def is_script(work: SlotWork) -> bool:
    """True for the task of a script."""
    return b'"type":"script"' in work.task.task.operators


def spark_wish(work: SlotWork) -> SparkWish:
    """What the job asks of Spark, as its owner has told the ResourceManager. Jobs without conf cost no parsing."""
    conf, operators = work.job.spark_conf, work.task.task.operators
    asked = {} if conf in _NO_CONF else static_conf(json.loads(conf))
    script: dict[str, str] = {}
    is_application = False
    if _OF_SCRIPTS in operators or _OF_JARS in operators:
        for operator in parse_operators(operators):
            if isinstance(operator.code, ScriptCode):
                script |= static_conf(operator.code.builder_conf)
            is_application = is_application or isinstance(operator.code, JarCode)
    if not is_application:  # an application has the paths of its jars in its own conf
        asked = with_jars(asked, [(jar.sha256, jar.name) for jar in work.job.jars])
    return SparkWish(work.job.job_id, asked, script, is_application)
