"""The environment of the Airflow that bin/quickstart.sh starts: whose DAGs, and the plugin found once."""

from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError
from runtime.entrypoint.control.airflow import _import_path, standalone_environment

FOLDER = "AIRFLOW__CORE__DAGS_FOLDER"


def folder(home: Path, given: str = "") -> str:
    variables = {"AIRFLOW_HOME": str(home), FOLDER: "/examples"}
    return standalone_environment(variables, {FOLDER: given, "A": "b"})[FOLDER]


def test_the_folder_is_the_callers_else_that_of_airflow_cfg_else_the_examples(tmp_path: Path) -> None:
    assert folder(tmp_path) == "/examples"
    assert folder(tmp_path, "/mine") == "/mine"
    (tmp_path / "airflow.cfg").write_text(f"[core]\ndags_folder = {tmp_path}/dags\nparallelism = 3\n")
    assert folder(tmp_path) == "/examples", "what Airflow itself writes at its first start"
    (tmp_path / "airflow.cfg").write_text("[core]\n# a comment\ndags_folder = /configured\n")
    assert folder(tmp_path) == "/configured"
    assert folder(tmp_path, "/mine") == "/mine"


def test_a_broken_airflow_cfg_is_named(tmp_path: Path) -> None:
    (tmp_path / "airflow.cfg").write_text("nothing = 1\n")
    with pytest.raises(InvalidInputError, match=r"airflow\.cfg cannot be read"):
        folder(tmp_path)


def test_the_checkout_is_left_out_where_it_is_installed(tmp_path: Path) -> None:
    home, packages = tmp_path / "home", tmp_path / "packages"
    home.mkdir()
    packages.mkdir()
    given = f"{home}:/other"
    assert _import_path(home, given, [str(packages)]) == given
    info = packages / "airflow_flinklike-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: airflow-flinklike\nVersion: 1\n")
    assert _import_path(home, given, [str(packages)]) == "/other"
    assert _import_path(home, str(home), [str(packages)]) == ""
