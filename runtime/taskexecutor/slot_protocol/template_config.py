"""The configuration with which the TaskManager starts its template process."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass

MESSAGE_BYTES_MAX = 4096
STACKS_SIGNAL = signal.SIGRTMIN + 7
"""A slot process that gets it writes the stacks of its Python threads. Libraries and user code have no use for it."""
STREAMS_SIGNAL = signal.SIGRTMIN + 8
"""By which a streaming script ends when one of its queries has failed. Another one: a look at stacks ends nothing."""
_PRELOADED = ("runtime.taskexecutor.slot_process.slot_main", "runtime.jobgraph.function_call", "encodings.ascii")
_SPARK = "runtime.taskexecutor.slot_process.attach:preload"
_CONNECT = "runtime.taskexecutor.slot_process.connect_attachment:preload"

SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Environment of the template: libraries start threads when they are imported, and a process that forks must have none.
"""


@dataclass(frozen=True, slots=True)
class TemplateConfig:
    """The configuration of the template process, as JSON on its command line.

    `address_space`: bytes by which a slot process may grow beside those that libraries reserve (RLIMIT_AS), 0 = no
    limit. It bounds memory that a task asks for at once, which the measured limit would find too late. `is_connect`:
    Spark is a Spark Connect server.
    """

    parent_pid: int
    task_manager_id: str
    has_spark: bool
    address_space: int
    inline_bytes_max: int
    is_static_conf_fatal: bool
    is_connect: bool = False

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules to import, and functions `module:function` to call, before the first fork."""
        spark = _CONNECT if self.is_connect else _SPARK
        return (*_PRELOADED, spark if self.has_spark else "cloudpickle")

    def to_json(self) -> str:
        """The config as JSON, for the command line."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def parse(cls, text: str) -> TemplateConfig:
        """The config from `to_json`."""
        return cls(**json.loads(text))
