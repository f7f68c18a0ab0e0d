"""A slot process imports nothing of the client for a function job."""

from __future__ import annotations

import base64
import json
import subprocess
import sys

from airflow_flinklike import function_job
from airflow_flinklike.api import function
from runtime.jobgraph.function_call import FunctionCall
from runtime.jobgraph.graph import PickledCode

LOAD = """
import base64, json, pickle, sys
import cloudpickle, runtime.jobgraph.function_call
before = set(sys.modules)
call = pickle.loads(base64.b64decode(sys.stdin.read()))
print(json.dumps([call(None), sorted(set(sys.modules) - before)]))
"""


def test_a_function_job_brings_its_code_and_no_imports() -> None:
    answer = 42
    code = function_job(lambda ctx, more: answer + more, args=[1]).job_graph().vertices[0].operators[0].code
    assert isinstance(code, PickledCode)
    data = base64.b64encode(code.payload()).decode()
    done = subprocess.run([sys.executable, "-c", LOAD], input=data, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [43, []]


def test_what_earlier_clients_have_pickled_is_found() -> None:
    assert function.FunctionCall is FunctionCall
