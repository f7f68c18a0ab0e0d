"""`flinklike open`: the dashboard in a browser, signed in as whoever runs the command."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from airflow_flinklike.cli.arguments import Address, AsJson, TokenFile, job_id_of, show
from airflow_flinklike.cli.connection import connect
from airflow_flinklike.exceptions import JobNotFoundError, JobRefusedError


def open_dashboard(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="id of a job, to open its page")] = None,
    print_only: Annotated[
        bool, typer.Option("--print", help="print the address, for a browser elsewhere, and open none")
    ] = False,
    address: Address = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Open the dashboard, or the page of a job, in a browser.

    The address has a code that signs in once, within a minute: no browser sends it on, and no log has it.
    """
    path = "/ui" if job is None else f"/ui/jobs/{job_id_of(job)}"
    with connect(address, token_file) as client:
        try:
            code = f"#code={client.post('/ui/codes')['code']}"
        except (JobNotFoundError, JobRefusedError):  # a cluster without authentication, or a certificate that signs in
            code = ""
        place = f"{client.address}{path}"
    secret = f"{place}{code}"
    is_open = not print_only and not as_json and webbrowser.open(secret)
    sentence = f"Opened {place}" if is_open else f"Open within a minute, once: {secret}" if code else f"Open {place}"
    show({"url": secret}, sentence, as_json=as_json)
