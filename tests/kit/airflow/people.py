"""People of an Airflow with sign-in: names, roles and passwords of its simple auth manager."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

PEOPLE = {"ada": "admin", "una": "user", "vera": "viewer"}


def environment(folder: Path) -> dict[str, str]:
    """Variables of an Airflow in which these people sign in, each with their name as the password."""
    file = folder / "passwords.json"
    file.write_text(json.dumps({name: name for name in PEOPLE}))
    return {
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in PEOPLE.items()),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(file),
    }


def token_of(url: str, name: str) -> str:
    """A token of that person."""
    answer = httpx.post(f"{url}/auth/token", json={"username": name, "password": name}, timeout=120)
    answer.raise_for_status()
    return str(answer.json()["access_token"])


def client_of(url: str, name: str) -> httpx.Client:
    """Requests of that person."""
    headers: dict[str, Any] = {"authorization": f"Bearer {token_of(url, name)}"}
    return httpx.Client(base_url=url, headers=headers, timeout=120)
