"""Entry point of the console script. Every error, also wrong usage, is one sentence on stderr and exit code 1."""

from __future__ import annotations

import difflib
import sys
from typing import NoReturn

import typer

from airflow_flinklike.cli.app import app
from airflow_flinklike.cli.spark_submit import INSTEAD
from airflow_flinklike.exceptions import (
    ClusterUnavailableError,
    FlinklikeClientError,
    ForeignAnswerError,
    HandshakeRefusedError,
)
from runtime.common.errors import FlinklikeError
from runtime.common.printable import printable

_NEAR = 0.75
"""The least similarity of an option to the typed one; a suggestion of a less similar one misleads."""


def main() -> None:
    """Run the command line."""
    try:
        sys.exit(app(prog_name="flinklike", standalone_mode=False))
    except (HandshakeRefusedError, ForeignAnswerError) as error:
        _refuse(str(error))
    except RecursionError:
        _refuse("what was answered is nested too deep to be shown")
    except ClusterUnavailableError as error:
        hint = (
            "" if error.is_answered else ". Is it started? bin/start-cluster.sh starts the cluster that conf/ describes"
        )
        _refuse(f"{error}{hint}")
    except (FlinklikeClientError, FlinklikeError) as error:
        _refuse(str(error))
    except typer.BadParameter as error:
        _refuse_usage(error.format_message())
    except typer.TyperException as error:
        if not error.format_message():
            sys.exit(1)  # a group of commands without one: its help is shown
        option = str(getattr(error, "option_name", ""))
        if option in INSTEAD and sys.argv[1:2] == ["run"]:
            _refuse(f"{option} is an option of spark-submit, and `flinklike run` has none: {INSTEAD[option]}")
        near = difflib.get_close_matches(option, getattr(error, "possibilities", None) or (), cutoff=_NEAR)
        _refuse_usage(str(error).rstrip(".") + (f". Did you mean {' or '.join(near)}?" if near else ""))


def _refuse_usage(sentence: str) -> NoReturn:
    _refuse(f"{sentence.rstrip('.')} (see --help)")


def _refuse(sentence: str) -> NoReturn:
    sys.stderr.write(f"flinklike: {printable(sentence)}\n")
    sys.exit(1)


if __name__ == "__main__":
    main()
