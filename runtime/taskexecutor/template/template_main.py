"""The template process: loads what user code needs once, then forks slot processes from it.

Invariants: single-threaded for ever (fork copies only the calling thread); children are forked from the main thread, so
that their parent-death signal follows this process; an exit is reported only when the whole tree below that slot
process is reaped (R15): both this process and each slot process are subreapers, so whatever a dead slot leaves behind
becomes a child of this process, is killed and waited for. Ends, with everything below it, when its TaskManager does.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import os
import resource
import selectors
import signal
import socket
import sys
from typing import Any, NoReturn

from runtime.system import linux
from runtime.taskexecutor.containment import cgroups
from runtime.taskexecutor.slot_protocol.template_config import (
    MESSAGE_BYTES_MAX,
    SINGLE_THREADED,
    STACKS_SIGNAL,
    TemplateConfig,
)
from runtime.taskexecutor.slot_protocol.wire import decode_fields, encode_fields

_OOM_SCORE = "600"
_LIBRARY_ADDRESSES = 4 << 30
"""What libraries reserve and do not use: Arrow's allocator 1 GiB at once, the C library 136 MiB for each thread. Arrow
waits for ever for a thread that finds no addresses."""


class Template:
    """The loop of the template process."""

    def __init__(self, control: socket.socket, config: TemplateConfig) -> None:
        self._control = control
        self._config = config
        self._numbers: dict[int, int] = {}  # pid -> the TaskManager's number of that slot process
        self._exited: list[bytes] = []  # exits whose trees are not reaped yet
        self._selector = selectors.DefaultSelector()
        self._wakeup_read, self._wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._pid = os.getpid()

    def run(self) -> None:
        """Serve until the TaskManager closes its end."""
        signal.signal(signal.SIGCHLD, _ignore_signal)
        signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._wakeup_read, selectors.EVENT_READ)
        self._tell(event="ready", pid=self._pid, threads=len(linux.thread_ids()))
        while True:
            ready = {key.fd for key, _ in self._selector.select()}
            if self._wakeup_read in ready:
                os.read(self._wakeup_read, MESSAGE_BYTES_MAX)
                self._reap()
            if self._control.fileno() in ready and not self._serve_one():
                break
        self._end_all()

    def _serve_one(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES_MAX, 2)
        except ConnectionResetError:
            data, descriptors = b"", []
        if not data:
            return False
        request = decode_fields(data)
        number = int(request["number"])
        if request["op"] == "fork":
            groups = tuple(request.get("groups", ()))
            # A JVM bounds its heap itself, and reserves many times what it uses: 0 is no limit.
            shares = 0 if request.get("has_jvm") else int(request.get("shares", 1))
            self._fork(number, (descriptors[0], descriptors[1]), groups, shares * self._config.address_space)
        else:
            self._signal(number, int(request["signal"]))
        return True

    def _fork(self, number: int, descriptors: tuple[int, int], groups: tuple[str, ...], addresses: int) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            _close(descriptors)
            self._tell(event="failed", number=number, error=str(error))
            return
        if pid == 0:
            self._become_slot_process(*descriptors, groups, addresses)
        _close(descriptors)
        self._numbers[pid] = number
        self._tell(event="forked", number=number, pid=pid)

    def _signal(self, number: int, signal_number: int) -> None:
        # Only this process reaps, so a pid in the table cannot have been given to another process.
        for pid, other in self._numbers.items():
            if other == number:
                os.kill(pid, signal_number)

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            self._note_exit(pid, status, usage)
        orphans = [pid for pid in linux.children_of(self._pid) if pid not in self._numbers]
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)
        if not orphans:
            for message in self._exited:
                self._send(message)
            self._exited.clear()

    def _note_exit(self, pid: int, status: int, usage: resource.struct_rusage) -> None:
        number = self._numbers.pop(pid, None)
        if number is None:
            return
        cpu_millis = int((usage.ru_utime + usage.ru_stime) * 1000)
        code = os.waitstatus_to_exitcode(status)
        fields = {"number": number, "code": code, "cpu_millis": cpu_millis, "memory_bytes": usage.ru_maxrss * 1024}
        self._exited.append(encode_fields(event="exited", **fields))

    def _end_all(self) -> None:
        while children := linux.children_of(self._pid):
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            os.wait()

    def _tell(self, **fields: Any) -> None:
        self._send(encode_fields(**fields))

    def _send(self, message: bytes) -> None:
        # Without a TaskManager to tell, the next read finds the end and this process ends too.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._control.send(message)

    def _become_slot_process(self, descriptor: int, stacks: int, groups: tuple[str, ...], addresses: int) -> NoReturn:
        """In the child. Never returns into the template's loop."""
        code = 70
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            self._selector.close()
            self._control.close()
            os.close(self._wakeup_read)
            os.close(self._wakeup_write)
            os.set_inheritable(stacks, False)  # noqa: FBT003 - the name of the function says it
            faulthandler.register(STACKS_SIGNAL, file=stacks)
            _isolate(self._pid, addresses)
            cgroups.enter(groups)  # R50
            from runtime.taskexecutor.slot_process.slot_main import run_slot_process

            run_slot_process(socket.socket(fileno=descriptor), self._config)
            code = 0
        except BaseException:  # noqa: BLE001 - the boundary of a forked child: it must not run its parent's loop
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(code)


def _isolate(template_pid: int, address_space: int) -> None:
    """`address_space`: 0 is no limit."""
    os.setsid()
    linux.die_with_parent(template_pid)
    linux.become_subreaper()
    linux.set_process_name("slot-process")
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib is slower, per fork
        file.write(_OOM_SCORE)
    if address_space:
        limit = linux.virtual_bytes() + address_space + _LIBRARY_ADDRESSES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # otherwise all slot processes draw the same numbers
    gc.enable()


def _close(descriptors: tuple[int, ...]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def preload(targets: tuple[str, ...]) -> None:
    """Import modules, and call `module:function`s, that every slot process will need."""
    for target in targets:
        module, _, function = target.partition(":")
        loaded = importlib.import_module(module)
        if function:
            getattr(loaded, function)()


def _ignore_signal(number: int, frame: object) -> None:
    """The wake-up descriptor does the work."""


def main(arguments: list[str]) -> None:
    """Entry point: the control socket's descriptor and the config as JSON."""
    config = TemplateConfig.parse(arguments[1])
    linux.die_with_parent(config.parent_pid)
    linux.become_subreaper()
    linux.refuse_new_privileges()  # R50: inherited by all slots
    linux.set_process_name("slot-template")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A crash of native code prints Python's stack to descriptor 2, that is to the attempt's stderr.
    faulthandler.enable(file=2)
    gc.disable()
    linux.line_buffer_c_stdout()
    preload(config.preload)
    for name in SINGLE_THREADED:
        os.environ.pop(name, None)
    # Otherwise Spark's Python workers run whatever python3 is on the PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    control = socket.socket(fileno=int(arguments[0]))
    control.set_inheritable(False)
    template = Template(control, config)
    gc.collect()
    gc.freeze()
    template.run()
