"""Callables as bytes: the user's own modules are pickled by value, and an error names the object that cannot be."""

import functools
import json
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from airflow_flinklike import Pipeline
from airflow_flinklike.api.pickling import OwnModules, own_modules, pickle_callable
from airflow_flinklike.exceptions import UnpicklableError

ROOT = Path(__file__).resolve().parents[3]
LOCK = threading.Lock()


@pytest.fixture
def user_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A DAG file and the helper module beside it, as Airflow would load them."""
    (tmp_path / "my_helper_module.py").write_text("BASE = 40\ndef add(x):\n    return BASE + x\n")
    (tmp_path / "my_dag_file.py").write_text(
        "import my_helper_module\nfrom my_helper_module import add\n"
        "def by_name(ctx):\n    return add(2)\ndef by_module(ctx):\n    return my_helper_module.add(2)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import my_dag_file  # type: ignore[import-not-found]  # made above

    yield my_dag_file
    for name in ("my_dag_file", "my_helper_module"):
        sys.modules.pop(name, None)


def run_elsewhere(data: bytes, tmp_path: Path) -> str:
    """Call the pickled function in a process that has only our packages."""
    file = tmp_path / "code.pickle"
    file.write_bytes(data)
    script = f"import pickle; print(pickle.load(open({str(file)!r}, 'rb'))(None))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, env={"PYTHONPATH": "."}
    )
    return done.stdout.strip() + done.stderr


@pytest.mark.parametrize("function", ["by_name", "by_module"])
def test_helper_modules_travel_with_the_code(user_modules: Any, tmp_path: Path, function: str) -> None:
    data = pickle_callable("op", getattr(user_modules, function))
    assert run_elsewhere(data, tmp_path) == "42"


def test_without_the_registration_the_helper_would_be_missing(user_modules: Any, tmp_path: Path) -> None:
    assert "No module named 'my_dag_file'" in run_elsewhere(cloudpickle.dumps(user_modules.by_name), tmp_path)


def test_the_registration_lasts_for_the_dump_only(user_modules: Any) -> None:
    before = cloudpickle.list_registry_pickle_by_value()
    pickle_callable("op", user_modules.by_name)
    assert cloudpickle.list_registry_pickle_by_value() == before
    cloudpickle.register_pickle_by_value(user_modules)
    try:
        pickle_callable("op", user_modules.by_name)
        assert "my_dag_file" in cloudpickle.list_registry_pickle_by_value()
    finally:
        cloudpickle.unregister_pickle_by_value(user_modules)


def test_only_the_users_own_modules_are_taken_by_value(user_modules: Any) -> None:
    names = {module.__name__ for module in own_modules}
    assert {"my_dag_file", "my_helper_module"} <= names
    assert not [
        name for name in names if name.startswith(("runtime", "airflow_flinklike", "pydantic", "json", "pytest"))
    ]
    del user_modules


def made(name: str, file: str) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = file
    return module


def test_what_is_loaded_unloaded_and_loaded_again_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: dict[str, ModuleType] = {}
    monkeypatch.setattr(sys, "modules", loaded)
    own = OwnModules()

    def names() -> list[str]:
        found = [one.__name__ for one in own]
        assert all(loaded[name] is one for name, one in zip(found, own, strict=True))
        return found

    loaded["a"] = made("a", "/home/a.py")
    loaded["json"] = made("json", json.__file__)
    assert names() == names() == ["a"]
    loaded["b"] = made("b", "/home/b.py")
    assert names() == ["a", "b"]
    del loaded["json"]
    loaded["c"] = made("c", "/home/c.py")
    assert names() == ["a", "b", "c"], "as many as before, and another one is the last"
    del loaded["c"]
    assert names() == ["a", "b"]
    loaded["b"] = made("b", "/home/other/b.py")
    assert names() == ["a", "b"], "the new one"
    del loaded["a"], loaded["b"]
    loaded["b"], loaded["a"] = made("b", "/home/b.py"), made("a", "/home/a.py")
    assert sorted(names()) == ["a", "b"]


def test_small_functions_stay_small() -> None:
    assert len(pickle_callable("op", lambda ctx: None)) < 2_000


class Holder:
    """Hides something deep inside."""

    def __init__(self) -> None:
        self.pool = {"lock": LOCK}

    def run(self, _ctx: Any) -> Any:
        return self.pool


HOLDER = Holder()


def uses_global(_ctx: Any) -> Any:
    return HOLDER


def with_closure() -> Any:
    connection = (row for row in range(3))

    def run(_ctx: Any) -> Any:
        return connection

    return run


def with_default(_ctx: Any, lock: Any = LOCK) -> Any:
    return lock


def plain(_ctx: Any, lock: Any) -> Any:
    return lock


def nested(_ctx: Any) -> Any:
    def inner() -> Any:
        return LOCK

    return inner


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (uses_global, "item 'lock', attribute 'pool' of a Holder, global 'HOLDER' used by uses_global()"),
        (HOLDER.run, "attribute 'pool' of a Holder, its object"),
        (with_default, "default 0 of with_default()"),
        (nested, "global 'LOCK' used by nested()"),
        (functools.partial(plain, lock=LOCK), "argument 'lock' of the partial"),
        (functools.partial(plain, [LOCK]), "element 0, argument 0 of the partial"),
    ],
    ids=["global", "method", "default", "inner function", "partial", "partial list"],
)
def test_the_object_to_blame_is_named(function: Any, expected: str) -> None:
    with pytest.raises(UnpicklableError) as caught:
        pickle_callable("load", function)
    text = str(caught.value)
    assert text.startswith("operator 'load' cannot be sent to the cluster: ")
    assert expected in text
    assert "a _thread.lock cannot be pickled" in text


def test_a_variable_of_a_closure_is_named() -> None:
    with pytest.raises(UnpicklableError, match=r"variable 'connection' in the closure of .*: a generator cannot be"):
        pickle_callable("load", with_closure())


def test_it_is_refused_when_the_job_is_built() -> None:
    pipeline = Pipeline("p")
    pipeline.source("read", uses_global)
    with pytest.raises(UnpicklableError, match="operator 'read'"):
        pipeline.job_graph()


def test_an_object_that_refuses_in_its_own_words() -> None:
    class Stubborn:
        def __reduce__(self) -> Any:
            message = "I stay\nhere"
            raise RuntimeError(message)

    thing = Stubborn()
    with pytest.raises(UnpicklableError, match=r"variable 'thing' .*RuntimeError: I stay\)"):
        pickle_callable("op", lambda ctx: thing)
