"""How long the texts of a failure may be, what kinds there are, and the failure that our own code finds."""

from __future__ import annotations

from runtime.gateways.task import FailureInfo, Fault

MESSAGE_LENGTH_MAX = 8 * 1024
STACK_LENGTH_MAX = 64 * 1024
CLASS_LENGTH_MAX = 512
USER, SYSTEM, RESOURCE = "USER", "SYSTEM", "RESOURCE"


def shorten(text: str, length_max: int) -> str:
    """The text with its middle left out where it is longer."""
    clean = text.encode("utf-8", "replace").decode()
    if len(clean) <= length_max:
        return clean
    half = length_max // 2
    return f"{clean[:half]}\n... {len(clean) - 2 * half} characters left out ...\n{clean[-half:]}"


def of_system(
    message: str,
    *,
    timestamp_millis: int,
    kind: str = SYSTEM,
    class_name: str = "SlotError",
    fault: Fault | None = None,
) -> FailureInfo:
    """A failure that the TaskManager saw, and that may not come again.

    `fault`: whose fault it is; None: as `kind` says.
    """
    text = shorten(message, MESSAGE_LENGTH_MAX)
    return FailureInfo(class_name, text, "", kind, True, timestamp_millis, fault=fault)  # noqa: FBT003
