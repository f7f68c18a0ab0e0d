"""`flinklike delegation-tokens` shows how long credentials of other services are valid, and failures (R51)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from airflow_flinklike.cli import render
from airflow_flinklike.cli.arguments import Address, AsJson, TokenFile, show
from airflow_flinklike.cli.connection import connect


def delegation_tokens(address: Address = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Show by provider until when the tokens of tasks are valid, and why there are no newer ones."""
    with connect(address, token_file) as client:
        found = client.get("/overview").get("delegation-tokens", [])  # missing in answers of older releases
    now = round(time.time() * 1000)  # noqa: TID251 - told to a person
    without = "No providers: security.delegation.token.provider.<name>.* configure them."
    show({"delegation-tokens": found}, providers_table(found, now) if found else without, as_json=as_json)


def providers_table(providers: Sequence[Mapping[str, Any]], now_millis: int) -> Table:
    """One line for each provider."""
    rows = [
        (str(one["provider"]), tokens_in_words(one, now_millis), str(one["failures"] or ""), str(one["failure"]))
        for one in providers
    ]
    return render.table(("provider", "tokens", "failures", "why"), rows)


def tokens_in_words(provider: Mapping[str, Any], now_millis: int) -> str:
    """The validity of a provider's tokens at that time."""
    ends = int(provider["valid-until"])
    if not provider.get("obtained", True):
        return "none yet"
    if not ends:
        return "without an end"
    return f"{'until' if ends > now_millis else 'ended'} {render.time_text(ends)}"
