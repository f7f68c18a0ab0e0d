"""The process behind SlotProcess: attach, bind, run the code that came in."""

from __future__ import annotations

import json
import sys
from typing import Any

from runtime.taskexecutor.slot_process.attach import attach
from runtime.taskexecutor.slot_process.attached_spark import JobBinding
from runtime.taskexecutor.slot_process.static_conf import StaticConfPolicy
from runtime.taskexecutor.spark_protocol.sessions import SlotSession


def emit(value: Any) -> None:
    print("\x1eslot:" + json.dumps(value), flush=True)


def main() -> None:
    order = json.loads(sys.stdin.readline())
    attached = attach(SlotSession(**order["session"]))
    fields = order["binding"]
    fields["static_conf"] = StaticConfPolicy(fields.get("static_conf", "warn"))
    fields["python_path"] = tuple(fields.get("python_path", ()))
    attached.bind(JobBinding(**fields))
    main_module: dict[str, Any] = vars(sys.modules["__main__"])
    main_module |= {"attached": attached, "emit": emit, "ask": sys.stdin.readline}
    if "#lazy" not in order["code"]:
        main_module["spark"] = attached.spark
    exec(compile(order["code"], "user_code.py", "exec"), main_module)


if __name__ == "__main__":
    main()
