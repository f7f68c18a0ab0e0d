"""What the body of a `@task.pyspark` function takes from Airflow, which stays in the worker."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from airflow_flinklike.migrate.imports import dotted
from airflow_flinklike.migrate.tree import Function, Tree

_INJECTED = frozenset({"spark", "sc", "ctx"})
_OBJECTS_TEXT = """
conn conf dag dag_run data_interval_end data_interval_start execution_date expanded_ti_count inlet_events
inlets logical_date macros outlet_events outlets prev_data_interval_end_success
prev_data_interval_start_success prev_end_date_success prev_start_date_success start_date task task_instance
task_reschedule_count templates_dict ti triggering_asset_events triggering_dataset_events var
"""
_OBJECTS = frozenset(_OBJECTS_TEXT.split())
"""Names of Airflow's context whose values are no plain ones."""


def obstacles_of_body(function: Function, tree: Tree) -> list[str]:
    """Reasons against a move."""
    return list(dict.fromkeys([*_of_parameters(function), *_of_names(function, tree)]))


def _of_parameters(function: Function) -> Iterator[str]:
    if isinstance(function, ast.AsyncFunctionDef):
        yield "it is an async function"
    names = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
    given = names & _OBJECTS - {"templates_dict"}
    for name in sorted(given - _INJECTED):
        yield f"parameter {name}: Airflow's {name} stays in the worker; pass what the function needs of it"
    rest = function.args.kwarg
    if rest is not None and _uses(function, rest.arg):
        yield f"**{rest.arg}: Airflow's context stays in the worker; name the parameters that the function needs"


def _uses(function: Function, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for part in function.body for node in ast.walk(part))


def _of_names(function: Function, tree: Tree) -> Iterator[str]:
    """Modules of Airflow that the function imports or uses."""
    for part in function.body:
        for node in ast.walk(part):
            full: list[str] = []
            if isinstance(node, ast.Import):
                full = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                full = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and dotted(node):
                full = tree.imports.full_names(node)
            for name in full:
                if name == "airflow" or name.startswith("airflow."):
                    yield f"its code uses {name}, which is in the worker only: pass the value as an argument"
