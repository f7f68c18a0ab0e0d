"""`flinklike certs` makes CAs, and certificates for processes and clients of a cluster. It works on files only."""

from __future__ import annotations

import ipaddress
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from airflow_flinklike.cli.arguments import AsJson
from runtime.common.errors import InvalidInputError

if TYPE_CHECKING:
    from runtime.security.certificate_folder import CertificateFolder

Directory = Annotated[Path, typer.Argument(help="directory with the CAs and what they issue, of its owner only")]

certificates = typer.Typer(
    name="certs", help="Make CAs and certificates for TLS; renew what ends.", no_args_is_help=True
)


@certificates.callback()
def _certificates() -> None:
    """Make CAs and certificates for TLS; renew what ends."""


@certificates.command()
def init(
    directory: Directory,
    cluster: Annotated[str, typer.Option(help="name of the cluster, in the names of its CAs")] = "flinklike",
    as_json: AsJson = False,
) -> None:
    """Make two CAs: one for links between processes, one for REST. Never overwrites one."""
    made = _folder(directory).init(cluster)
    said = [f"Made {path}" for path in made]
    said.append(f"Keep {directory} on one host: its *-ca-key.pem files can make certificates of this cluster.")
    said.append(f"Next: flinklike certs issue {directory} --name internal --host HOST, and the same with --name rest.")
    _show({"made": [str(path) for path in made]}, said, as_json=as_json)


@certificates.command()
def issue(
    directory: Directory,
    host: Annotated[
        list[str],
        typer.Option(help="name under which the process is dialled, or a client's name; several may be given"),
    ],
    ip: Annotated[list[str] | None, typer.Option(help="address under which it is dialled")] = None,
    name: Annotated[Literal["internal", "rest", "client"], typer.Option(help="what it is for")] = "internal",
    as_json: AsJson = False,
) -> None:
    """Issue a certificate, with its key in the same file. Prints what to put into the configuration."""
    for address in ip or ():
        _check_address(address)
    path, ca = _folder(directory).issue(name, [*host, *(ip or ())])
    if name == "client":
        lines = [f"Give the client {path}, and {ca}: --ca {ca} --cert {path}"]
    else:
        lines = [f"# conf/config.yaml on {host[0]}", *_configuration(name, path, ca)]
    _show({"made": str(path), "ca": str(ca)}, [f"Made {path}", *lines], as_json=as_json)


@certificates.command()
def renew(
    directory: Directory,
    days: Annotated[int, typer.Option(min=0, max=3650, help="renew what ends within so many days")] = 30,
    everything: Annotated[bool, typer.Option("--all", help="renew all certificates")] = False,
    ca: Annotated[
        bool, typer.Option("--ca", help="make new CAs; the old ones stay trusted, and certificates as they are")
    ] = False,
    drop_old_ca: Annotated[
        bool, typer.Option("--drop-old-ca", help="trust the newest CAs alone; the last step of a change of CAs")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Issue certificates again, with the same names and files. Processes take them while they run."""
    if ca + drop_old_ca + everything > 1:
        message = "--ca, --all and --drop-old-ca are three steps, one after the other"
        raise InvalidInputError(message)
    folder = _folder(directory)
    if drop_old_ca:
        left = folder.drop_old_authorities()
        _show(
            {"made": [str(path) for path in left]},
            [f"{path} trusts the newest CA alone: put it on every host, and give it to clients." for path in left],
            as_json=as_json,
        )
        return
    if ca:
        made = folder.renew_authorities()
        said = [f"Both CAs are trusted by {path}: put it on every host, and give it to clients." for path in made]
        said.append(f"When all have it: flinklike certs renew {directory} --all")
        said.append(f"When all have what that makes: flinklike certs renew {directory} --drop-old-ca")
        _show({"made": [str(path) for path in made]}, said, as_json=as_json)
        return
    before = _now() + timedelta(days=days)
    renewed = folder.renew(before=before, everything=everything)
    said = [f"Renewed {one.path}, valid until {one.ends:%Y-%m-%d}" for one in renewed]
    ending = folder.ending(before)
    said += [f"The CA in {path} ends soon: flinklike certs renew {directory} --ca" for path in ending]
    body = {"renewed": [str(one.path) for one in renewed], "ending": [str(path) for path in ending]}
    _show(body, said or [f"Nothing in {directory} ends within {days} days."], as_json=as_json)


def _check_address(text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        message = f"--ip {text!r} is no address: expected one such as 10.0.0.1 or ::1; names go with --host"
        raise InvalidInputError(message) from None


def _configuration(kind: str, path: Path, ca: Path) -> list[str]:
    values = {"enabled": "true", "cert": path.absolute(), "key": path.absolute(), "ca": ca.absolute()}
    return [f"security.ssl.{kind}.{name}: {value}" for name, value in values.items()]


def _folder(directory: Path) -> CertificateFolder:
    try:
        from runtime.security.certificate_folder import CertificateFolder  # noqa: PLC0415 - no other command needs it
    except ModuleNotFoundError as error:
        message = f"certificates need the package {error.name}: pip install 'airflow-flinklike[cluster]'"
        raise InvalidInputError(message) from error
    return CertificateFolder(directory, _now())


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - a command of people, who have no other clock


def _show(body: Any, lines: list[str], *, as_json: bool) -> None:
    sys.stdout.write((json.dumps(body) if as_json else "\n".join(lines)) + "\n")
