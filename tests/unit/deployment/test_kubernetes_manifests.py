"""conf/kubernetes: each overlay is valid for Kubernetes' schemas, and hangs together with the image and the options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from runtime.config.configuration import Configuration
from runtime.config.loading import load
from runtime.config.options import jobmanager as jm
from runtime.config.options import taskmanager as tm
from runtime.config.options.adaptive_scheduler import SCHEDULER_MODE
from tests.kit.manifests import FOLDER, containers, documents, rendered

ROOT = FOLDER.parents[1]
VERSION = "1.37"
OVERLAYS = sorted((FOLDER / "overlays").iterdir())
ROLES = ("jobmanager", "jobmaster", "taskmanager")
every_overlay = pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.name)


def workload(overlay: Path, role: str) -> dict[str, Any]:
    return rendered(overlay)["StatefulSet", f"flinklike-{role}"]


def configuration(overlay: Path, tmp_path: Path) -> Configuration:
    text = rendered(overlay)["ConfigMap", "flinklike-configuration"]["data"]["config.yaml"]
    (tmp_path / "config.yaml").write_text(text)
    return load(tmp_path, environment={})


def test_there_is_one_to_try_and_one_to_use() -> None:
    assert [one.name for one in OVERLAYS] == ["production", "trial"]


@every_overlay
def test_each_manifest_is_valid(overlay: Path) -> None:
    for manifest in rendered(overlay).values():
        kubernetes_validate.validate(manifest, VERSION, strict=True)


def test_a_misspelt_field_is_found() -> None:
    manifest = workload(FOLDER / "overlays" / "trial", "taskmanager")
    manifest["spec"]["replica"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, VERSION, strict=True)


def test_no_file_is_left_out() -> None:
    named = {
        (path.parent / name).resolve()
        for path in FOLDER.rglob("kustomization.yaml")
        for one in documents(path)
        for name in [*one["resources"], *(patch["path"] for patch in one.get("patches", ()))]
    }
    assert {path for path in FOLDER.rglob("*.yaml") if path.name != "kustomization.yaml"} <= named


@every_overlay
def test_names_that_manifests_use_exist(overlay: Path) -> None:
    found = rendered(overlay)
    labels = [
        one["spec"]["template"]["metadata"]["labels"] for (kind, _), one in found.items() if kind == "StatefulSet"
    ]
    for (kind, name), one in found.items():
        selector = one.get("spec", {}).get("selector", {})
        wanted = selector.get("matchLabels", selector if kind == "Service" else {})
        assert any(wanted.items() <= of.items() for of in labels), (kind, name)
        if kind == "StatefulSet":
            assert ("Service", one["spec"]["serviceName"]) in found
            spec = one["spec"]["template"]["spec"]
            volumes = {volume["name"]: volume for volume in spec["volumes"]}
            for container in containers(one):
                assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
            account = spec.get("serviceAccountName")
            assert account is None or ("ServiceAccount", account) in found
        if kind == "HorizontalPodAutoscaler":
            target = one["spec"]["scaleTargetRef"]
            assert (target["kind"], target["name"]) in found


@every_overlay
@pytest.mark.parametrize("role", ROLES)
def test_a_pod_may_not_more_than_it_needs(overlay: Path, role: str) -> None:
    spec = workload(overlay, role)["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    (container,) = spec["containers"]
    assert container["args"] == [role]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@every_overlay
@pytest.mark.parametrize("role", ROLES)
def test_probes_and_stops_use_what_the_image_has(overlay: Path, role: str) -> None:
    (container,) = containers(workload(overlay, role))
    commands = [
        one["exec"]["command"]
        for name in ("startup", "readiness", "liveness")
        if "exec" in (one := container[f"{name}Probe"])
    ]
    commands += [one["exec"]["command"] for one in container.get("lifecycle", {}).values()]
    for program, *_ in commands:
        assert os.access(ROOT / Path(program).relative_to("/opt/flinklike"), os.X_OK), program


@every_overlay
def test_the_configuration_is_one_and_its_ports_are_those_of_the_pods(overlay: Path, tmp_path: Path) -> None:
    found = configuration(overlay, tmp_path)
    ports = {
        "jobmanager": {"rest": found.get(jm.REST_PORT), "rpc": found.get(jm.JOBMANAGER_PORT)},
        "jobmaster": {"rpc": found.get(jm.JOBMASTER_PORT)},
        "taskmanager": {"rpc": found.get(tm.TASKMANAGER_PORT)},
    }
    for role, wanted in ports.items():
        (container,) = containers(workload(overlay, role))
        assert {one["name"]: one["containerPort"] for one in container["ports"]} == wanted
    drain = found.get(tm.DRAIN_TIMEOUT).total_seconds()
    grace = workload(overlay, "taskmanager")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace >= drain + 40, "the drain, the release of what has not ended, and the stop"


@every_overlay
def test_each_role_has_a_budget_and_a_closed_network(overlay: Path) -> None:
    found = rendered(overlay)
    for role in ROLES:
        assert ("PodDisruptionBudget", f"flinklike-{role}") in found
        assert found["NetworkPolicy", f"flinklike-{role}"]["spec"]["policyTypes"] == ["Ingress"]
    assert "ingress" not in found["NetworkPolicy", "flinklike-closed"]["spec"]


def test_the_one_to_use_grows_with_its_load(tmp_path: Path) -> None:
    overlay = FOLDER / "overlays" / "production"
    found = rendered(overlay)
    scaler = found["HorizontalPodAutoscaler", "flinklike-taskmanager"]["spec"]
    assert scaler["minReplicas"] == found["StatefulSet", "flinklike-taskmanager"]["spec"]["replicas"]
    assert found["StatefulSet", "flinklike-jobmanager"]["spec"]["replicas"] == 3
    assert configuration(overlay, tmp_path).get(SCHEDULER_MODE) == "reactive", "streams use what comes"
