"""The manifests of conf/kubernetes as `kubectl kustomize` would put an overlay together, as far as they use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[2] / "conf" / "kubernetes"


def documents(path: Path) -> list[dict[str, Any]]:
    """All documents of a file."""
    return [one for one in yaml.safe_load_all(path.read_text()) if one is not None]


def rendered(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Kind and name -> manifest, with the patches of the folder. AssertionError for what kustomize would refuse."""
    (kustomization,) = documents(folder / "kustomization.yaml")
    assert kustomization.keys() <= {"apiVersion", "kind", "resources", "patches"}, folder
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for name in kustomization["resources"]:
        path = (folder / name).resolve()
        more = rendered(path) if path.is_dir() else {key_of(one): one for one in documents(path)}
        assert not found.keys() & more.keys(), f"{folder}: twice"
        found |= more
    for patch in kustomization.get("patches", ()):
        for one in documents(folder / patch["path"]):
            assert key_of(one) in found, f"{folder}: nothing has the name of the patch {key_of(one)}"
            found[key_of(one)] = merged(found[key_of(one)], one)
    return found


def key_of(manifest: dict[str, Any]) -> tuple[str, str]:
    """Kind and name."""
    return manifest["kind"], manifest["metadata"]["name"]


def merged(whole: Any, patch: Any) -> Any:
    """A strategic merge: mappings by key, lists of named things by name, all else is replaced."""
    if isinstance(whole, dict) and isinstance(patch, dict):
        return {**whole, **{key: merged(whole.get(key), value) for key, value in patch.items()}}
    if _is_named(whole) and _is_named(patch):
        by_name = {one["name"]: one for one in whole}
        for one in patch:
            by_name[one["name"]] = merged(by_name.get(one["name"]), one)
        return list(by_name.values())
    return patch


def _is_named(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) and "name" in one for one in value)


def containers(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The containers of a workload."""
    yield from manifest["spec"]["template"]["spec"]["containers"]
