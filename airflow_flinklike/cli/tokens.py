"""`flinklike tokens` manages principals, their tokens and certificates. For admins; a token is shown once."""

from __future__ import annotations

import re
import time
from typing import Annotated, Any
from urllib.parse import quote

import typer

from airflow_flinklike.cli import render
from airflow_flinklike.cli.arguments import Address, AsJson, TokenFile, show
from airflow_flinklike.cli.connection import connect
from airflow_flinklike.client import FlinklikeClient
from runtime.common.printable import printable

NEVER = "never"
EXPIRES = "90d"
_EXPIRES = re.compile(r"(\d{1,6})\s*(d|h|min|s)\Z")
_SECONDS = {"d": 86400, "h": 3600, "min": 60, "s": 1}

Name = Annotated[str, typer.Argument(help="name of the principal; jobs carry it as their submitter")]
Expires = Annotated[str, typer.Option(help="how long the token is taken: 30d, 12h, 15min, 60s or never")]

tokens = typer.Typer(
    name="tokens", help="Show who may sign in; create, rotate, revoke and forget tokens.", invoke_without_command=True
)


@tokens.callback()
def _default(
    context: typer.Context, address: Address = None, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """Show who may sign in; create, rotate, revoke and forget tokens."""
    if context.invoked_subcommand is None:
        _show_all(address, token_file, as_json=as_json)


@tokens.command("list")
def list_tokens(address: Address = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """List all principals with their roles, also revoked ones, without their tokens."""
    _show_all(address, token_file, as_json=as_json)


@tokens.command()
def create(
    name: Name,
    role: Annotated[str, typer.Option(help="viewer, submitter (own jobs), operator or admin")],
    namespace: Annotated[str, typer.Option(help="whose jobs it sees; * is those of all")] = "*",
    expires: Annotated[
        str | None,
        typer.Option(help="how long it is taken: 30d, 12h, 15min, 60s or never", show_default=EXPIRES),
    ] = None,
    certificate: Annotated[
        str | None, typer.Option(help="in place of a token: the name in client certificates that sign in as this one")
    ] = None,
    address: Address = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Create a principal with a token, which is printed only now; or one that signs in by a certificate."""
    document: dict[str, Any] = {"name": name, "role": role, "namespace": namespace}
    if certificate is None:
        document["lifetime"] = lifetime_seconds(expires or EXPIRES)
    elif expires is None:
        document["certificate"] = certificate
    else:
        message = "--expires: a certificate ends when it says so, leave it out with --certificate"
        raise typer.BadParameter(message)
    with connect(address, token_file) as client:
        made = client.post("/tokens", document)
        is_asked = certificate is None or _asks_for_certificates(client)
    if not is_asked:
        render.console(stderr=True).print(
            "REST does not ask for certificates yet: set security.ssl.rest.authentication-enabled: true."
        )
    if certificate is None:
        _show_token(made, as_json=as_json)
    else:
        show(made, f"{name} signs in by the certificate {printable(certificate)!r}.", as_json=as_json)
        _tell_granted(made, as_json=as_json)


@tokens.command()
def rotate(
    name: Name,
    expires: Expires = EXPIRES,
    address: Address = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Create a further token. The token before it stays valid until it ends; of three, the oldest ends now."""
    with connect(address, token_file) as client:
        made = client.post(f"/tokens/{quote(name, safe='')}/rotate", {"lifetime": lifetime_seconds(expires)})
    _show_token(made, as_json=as_json)


@tokens.command()
def revoke(name: Name, address: Address = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """End all tokens of a principal, and the access by its certificate, at once. Its jobs run on."""
    with connect(address, token_file) as client:
        client.delete(f"/tokens/{quote(name, safe='')}")
    show({"name": name, "is-revoked": True}, f"{name} is revoked.", as_json=as_json)


@tokens.command()
def forget(name: Name, address: Address = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Delete a revoked principal. After that a JSON Web Token of the same name signs in again."""
    with connect(address, token_file) as client:
        client.post(f"/tokens/{quote(name, safe='')}/forget")
    text = f"{name} is forgotten: a JSON Web Token of that name, if there are any, signs in again."
    show({"name": name, "is-forgotten": True}, text, as_json=as_json)


def _asks_for_certificates(client: FlinklikeClient) -> bool:
    settings = client.get("/jobmanager/config")
    return {"key": "security.ssl.rest.authentication-enabled", "value": "true"} in settings


def lifetime_seconds(text: str) -> int:
    """The lifetime in seconds, 0 for never. Raises BadParameter."""
    if text == NEVER:
        return 0
    match = _EXPIRES.match(text)
    if match is None:
        message = f"--expires {text[:40]}: expected 30d, 12h, 15min, 60s or never"
        raise typer.BadParameter(message)
    return int(match.group(1)) * _SECONDS[match.group(2)]


def _show_all(address: str | None, token_file: Any, *, as_json: bool) -> None:
    with connect(address, token_file) as client:
        body = client.get("/tokens")
    principals = body["principals"]
    without = "No principals but the admin, whose token is that of the cluster."
    now = round(time.time() * 1000)  # noqa: TID251 - told to a person
    show(body, render.principals_table(principals, now) if principals else without, as_json=as_json)


def _show_token(made: dict[str, Any], *, as_json: bool) -> None:
    """Print the token alone to stdout, for `$(...)` and `>`."""
    show(made, made["token"], as_json=as_json)
    _tell_granted(made, as_json=as_json)


def _tell_granted(made: dict[str, Any], *, as_json: bool) -> None:
    if not as_json:
        render.console(stderr=True).print(render.granted_in_words(made))
