"""Entry of the console script: every error is one sentence on stderr and exit code 1."""

from __future__ import annotations

import sys

from airflow_flinklike.cli.app import app
from airflow_flinklike.exceptions import FlinklikeClientError
from runtime.common.errors import FlinklikeError


def main() -> None:
    """Run the command line."""
    try:
        app(prog_name="flinklike")
    except (FlinklikeClientError, FlinklikeError) as error:
        sys.stderr.write(f"flinklike: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
