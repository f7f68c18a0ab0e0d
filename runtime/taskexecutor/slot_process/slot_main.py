"""The slot process: waits for work on its socket and runs it, one task at a time, in its main thread."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from runtime.taskexecutor.containment.users import Identity
from runtime.taskexecutor.slot_process.channel import Channel
from runtime.taskexecutor.slot_process.own_signals import watch_own_signals
from runtime.taskexecutor.slot_process.spark_attachment import SparkAttachment
from runtime.taskexecutor.slot_process.task_runner import TaskRunner, too_large
from runtime.taskexecutor.slot_protocol.template_config import TemplateConfig
from runtime.taskexecutor.slot_protocol.wire import OUTCOME_BYTES_MAX, FrameKind, decode_order, encode_outcome

if TYPE_CHECKING:
    from runtime.taskexecutor.slot_process.connect_attachment import ConnectAttachment


def _attachment(channel: Channel, config: TemplateConfig) -> SparkAttachment | ConnectAttachment:
    if config.has_spark and config.is_connect:
        from runtime.taskexecutor.slot_process.connect_attachment import ConnectAttachment

        return ConnectAttachment(channel, is_static_conf_fatal=config.is_static_conf_fatal)
    return SparkAttachment(channel, has_spark=config.has_spark, is_static_conf_fatal=config.is_static_conf_fatal)


def run_slot_process(sock: socket.socket, config: TemplateConfig) -> None:
    """Serve until the TaskManager closes its end, which also happens when it dies."""
    channel = Channel(sock)
    identity = Identity()
    watch_own_signals(channel)
    attachment = _attachment(channel, config)
    runner = TaskRunner(
        channel, attachment, task_manager_id=config.task_manager_id, inline_bytes_max=config.inline_bytes_max
    )
    while (frame := channel.receive()) is not None:
        match frame.kind:
            case FrameKind.ATTACH:
                attachment.attach(frame.payload)
            case FrameKind.RUN:
                order = decode_order(frame.payload)
                identity.become(order.user)  # R50: before anything of the task is looked at
                payload = encode_outcome(runner.run(order))
                if len(payload) > OUTCOME_BYTES_MAX:
                    payload = encode_outcome(too_large(payload))
                channel.send(FrameKind.DONE, payload)
            case _:
                # NO_SPARK that crossed the end of the task that asked.
                continue
