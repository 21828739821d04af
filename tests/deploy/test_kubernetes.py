"""The manifests, as the schemas of Kubernetes have them, and what they have to say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.settings import check
from tests.deploy.tools import DEPLOY, installed

FOLDER = DEPLOY / "kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
FILES: list[str] = KUSTOMIZATION["resources"]


def validate(*files: Path) -> subprocess.CompletedProcess[str]:
    tool = installed("kubernetes-validate")
    return subprocess.run(
        [sys.executable, "-m", "kubernetes_validate", "--strict", *files],
        env={**os.environ, "PYTHONPATH": str(tool)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def documents() -> list[dict[str, Any]]:
    return [one for name in FILES for one in yaml.safe_load_all((FOLDER / name).read_text())]


def the(kind: str, name: str) -> dict[str, Any]:
    (found,) = [
        one for one in documents() if one["kind"] == kind and one["metadata"]["name"] == name
    ]
    return found


def pod_of(workload: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = workload["spec"]["template"]["spec"]
    return found


WORKER = pod_of(the("DaemonSet", "sandboxd-worker"))
ROUTER = pod_of(the("Deployment", "sandboxd-router"))


def test_manifests_have_the_right_form() -> None:
    """Every document, with no field that the schemas do not know."""
    found = validate(*(FOLDER / name for name in FILES))

    assert found.returncode == 0, found.stdout + found.stderr
    assert (found.stdout + found.stderr).count(" passed ") == len(documents())


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("hostPID: true", "hostPid: true"),
        ("mountPropagation: Bidirectional", "mountPropogation: Bidirectional"),
        ("preStop:", "prestop:"),
        ("minReadySeconds: 20", "minReadySeconds: twenty"),
        ("policyTypes: [Ingress]", "policyType: [Ingress]"),
    ],
)
def test_a_misspelt_field_is_refused(tmp_path: Path, right: str, wrong: str) -> None:
    """The check is one that can fail."""
    text = (FOLDER / "workers.yaml").read_text()
    assert right in text
    broken = tmp_path / "workers.yaml"
    broken.write_text(text.replace(right, wrong))

    assert validate(broken).returncode != 0


def test_all_files_are_applied() -> None:
    there = {path.name for path in FOLDER.glob("*.yaml")}
    assert there == {*FILES, "kustomization.yaml"}
    (generated,) = KUSTOMIZATION["configMapGenerator"]
    assert all((FOLDER / file).is_file() for file in generated["files"])


def worker_environment() -> dict[str, str]:
    """As a pod has it, with made-up values for what comes from elsewhere."""
    settings = the("ConfigMap", "sandboxd")["data"]
    found = {}
    for variable in WORKER["containers"][0]["env"]:
        source = variable.get("valueFrom", {})
        if "configMapKeyRef" in source:
            found[variable["name"]] = settings[source["configMapKeyRef"]["key"]]
        else:
            found[variable["name"]] = variable.get("value", "given-elsewhere")
    return found


def test_daemons_accept_their_settings() -> None:
    config = check(worker_environment())

    assert config.keep_sessions
    assert config.snapshot_store.startswith("s3://")
    assert config.is_worker


def test_workers_use_the_nodes_engine_at_the_same_paths() -> None:
    """State and sockets have the same path as on the node, and mounts pass both ways."""
    config = check(worker_environment())
    paths = {one["name"]: one["hostPath"]["path"] for one in WORKER["volumes"] if "hostPath" in one}
    mounts = WORKER["containers"][0]["volumeMounts"]
    assert {one["name"] for one in mounts} == {one["name"] for one in WORKER["volumes"]}
    for mount in mounts:
        assert paths.get(mount["name"], mount["mountPath"]) == mount["mountPath"]
    shared = [one["mountPath"] for one in mounts if one.get("mountPropagation") == "Bidirectional"]
    for path in (config.state_dir, config.run_dir):
        assert str(path) in shared
    assert WORKER["hostPID"] is True


def test_no_secret_is_in_a_manifest() -> None:
    """They are named, and made by others."""
    assert not [one for one in documents() if one["kind"] == "Secret"]
    for variable in WORKER["containers"][0]["env"]:
        name = variable["name"]
        if name.startswith("AWS_"):
            assert variable["valueFrom"].keys() == {"secretKeyRef"}
        elif any(word in name for word in ("KEY", "PASSWORD", "TOKEN", "SECRET")):
            assert variable["value"].startswith("/etc/sandboxd/"), name
    secret = {one["name"] for one in WORKER["volumes"] if "secret" in one}
    for mount in WORKER["containers"][0]["volumeMounts"]:
        assert mount["name"] not in secret or mount["readOnly"]


@pytest.mark.parametrize("pod", [WORKER, ROUTER], ids=["worker", "router"])
def test_pods_cannot_speak_to_kubernetes(pod: dict[str, Any]) -> None:
    assert pod["automountServiceAccountToken"] is False
    account = the("ServiceAccount", pod["serviceAccountName"])
    assert account["automountServiceAccountToken"] is False
    assert not [one for one in documents() if "Role" in one["kind"]]


def test_a_worker_drains_before_it_stops() -> None:
    """And has the time for it; only one goes at a time."""
    container = WORKER["containers"][0]
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["sandboxd", "drain"]
    assert WORKER["terminationGracePeriodSeconds"] >= 600
    assert the("PodDisruptionBudget", "sandboxd-worker")["spec"]["maxUnavailable"] == 1
    update = the("DaemonSet", "sandboxd-worker")["spec"]["updateStrategy"]
    assert update["rollingUpdate"]["maxUnavailable"] == 1


def test_selectors_find_their_pods() -> None:
    """Services, budgets and policies are about the pods that there are."""
    labels = {
        one["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: one["spec"][
            "template"
        ]["metadata"]["labels"]
        for one in documents()
        if one["kind"] in ("DaemonSet", "Deployment")
    }
    assert labels.keys() == {"worker", "router"}
    found = []
    for one in documents():
        spec = one.get("spec", {})
        if one["kind"] == "Service":
            found.append(spec["selector"])
        elif one["kind"] in ("PodDisruptionBudget", "DaemonSet", "Deployment"):
            found.append(spec["selector"]["matchLabels"])
        elif one["kind"] == "NetworkPolicy":
            found.append(spec["podSelector"]["matchLabels"])
    assert len(found) == 8
    assert all(one in labels.values() for one in found)


def test_the_router_is_locked_down_and_asked_for_its_health() -> None:
    containers = [*ROUTER["initContainers"], *ROUTER["containers"]]
    for container in containers:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
    assert ROUTER["securityContext"]["runAsNonRoot"] is True
    assert ROUTER["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/health"


def test_the_router_asks_for_workers_where_they_are() -> None:
    """The name and the port of the headless service, under which workers also reach each other."""
    service = the("Service", "sandboxd-workers")
    assert service["spec"]["clusterIP"] == "None"
    host = f"sandboxd-workers.{service['metadata']['namespace']}.svc.cluster.local"
    port = service["spec"]["ports"][0]["port"]

    assert f"--any={host}:{port}" in ROUTER["initContainers"][0]["args"]
    assert worker_environment()["WORKER_DOMAIN"] == host
    assert worker_environment()["PORT"] == str(port)
