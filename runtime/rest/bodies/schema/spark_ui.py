"""The body that opens Spark's own pages."""

from __future__ import annotations

from typing_extensions import TypedDict


class SparkUiOpened(TypedDict):
    """`address`: the origin of the pages, "" where it is `port` of the host that was asked. `code` opens them once."""

    address: str
    port: int
    code: str
