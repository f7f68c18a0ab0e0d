"""How the standard fields of a connection of type `flinklike` look in Airflow's form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

HIDDEN_FIELDS: Sequence[str] = ("login", "schema")
RELABELING: Mapping[str, str] = {"password": "Token"}
PLACEHOLDERS: Mapping[str, str] = {
    "host": "127.0.0.1",
    "port": "8081",
    "password": "the content of run/token on the cluster",
}
