"""deploy/kubernetes: valid to the letter, and, what no validator sees, that its parts and the programs agree."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import kubernetes_validate
import numpy as np
import pytest
import yaml
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from harness import BIN, PROTO, Cluster, bf16, espalier, make_checkpoint
from kustomize import Resource, identity, render

ROOT = PROTO.parent
FOLDER = ROOT / "deploy/kubernetes"
APPLIED = ["base", "job", "overlays/gpu", "overlays/multi-node", "overlays/single-node"]
# The oldest release that Kubernetes supported when these were written, and the newest whose schemas there are.
RELEASES = ["1.33.0", kubernetes_validate.latest_version()]
CUSTOM = {"PodMonitor"}
NAME = "app.kubernetes.io/name"


@pytest.fixture(name="resources", params=APPLIED)
def fixture_resources(request: pytest.FixtureRequest) -> list[Resource]:
    return render(FOLDER / request.param)


def everything(applied: str) -> list[Resource]:
    """What runs in the namespace when an overlay and the job are applied."""
    return render(FOLDER / applied) + ([] if applied == "job" else render(FOLDER / "job"))


def of_kind(resources: list[Resource], *kinds: str) -> list[Resource]:
    return [resource for resource in resources if resource["kind"] in kinds]


def pods(resources: list[Resource]) -> list[Resource]:
    """The pod templates."""
    return [r["spec"]["template"] for r in of_kind(resources, "Deployment", "StatefulSet", "Job")]


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    exact = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    assert all(expression["operator"] == "In" for expression in selector.get("matchExpressions", []))
    return exact and all(labels.get(e["key"]) in e["values"] for e in selector.get("matchExpressions", []))


def selected(resources: list[Resource], selector: dict[str, Any]) -> list[Resource]:
    return [pod for pod in pods(resources) if selects(selector, pod["metadata"]["labels"])]


def ports(pod: Resource) -> dict[str, int]:
    return {p["name"]: p["containerPort"] for c in pod["spec"]["containers"] for p in c.get("ports", [])}


def walk(node: Any) -> Iterator[Any]:
    yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from walk(child)


def version() -> str:
    found = re.search(r"project\(espalier VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    assert found
    return found.group(1)


@pytest.mark.parametrize("release", RELEASES)
def test_every_resource_is_valid(resources: list[Resource], release: str) -> None:
    for resource in resources:
        if resource["kind"] not in CUSTOM:
            kubernetes_validate.validate(resource, release, strict=True)


def test_the_validator_is_strict() -> None:
    (deployment,) = of_kind(render(FOLDER / "base"), "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, RELEASES[-1], strict=True)


@pytest.mark.parametrize("applied", APPLIED)
def test_kubectl_renders_the_same(applied: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The renderer of these tests is right: wherever there is a kubectl of this decade, it says so too."""
    kubectl = shutil.which("kubectl")
    done = kubectl and subprocess.run(
        [kubectl, "kustomize", FOLDER / applied], capture_output=True, text=True, check=False
    )
    if not done or done.returncode != 0:
        with capsys.disabled():
            print("\nno kubectl that renders components here: its output is not compared")
        pytest.skip("no kubectl that renders components")
    text = re.sub(r"\b(espalier-recipe)-[a-z0-9]{10}\b", r"\1", done.stdout)
    theirs = list(yaml.safe_load_all(text))
    ours = render(FOLDER / applied)
    assert sorted(theirs, key=identity) == sorted(ours, key=identity)


def test_names_are_unique_and_in_the_namespace(resources: list[Resource]) -> None:
    names = [identity(resource) for resource in resources]
    assert len(names) == len(set(names))
    assert {r["metadata"].get("namespace") for r in resources if r["kind"] != "Namespace"} == {"espalier"}


def test_selectors_find_pods(resources: list[Resource]) -> None:
    for workload in of_kind(resources, "Deployment", "StatefulSet"):
        assert selects(workload["spec"]["selector"], workload["spec"]["template"]["metadata"]["labels"])
    for service in of_kind(resources, "Service"):
        assert len(selected(resources, {"matchLabels": service["spec"]["selector"]})) == 1
    for budget in of_kind(resources, "PodDisruptionBudget"):
        assert len(selected(resources, budget["spec"]["selector"])) == 1
    for pod in pods(resources):
        for spread in pod["spec"].get("topologySpreadConstraints", []):
            assert selects(spread["labelSelector"], pod["metadata"]["labels"])


@pytest.mark.parametrize("applied", [name for name in APPLIED if name != "job"])
def test_network_policies_let_through_what_is_needed_and_nothing_else(applied: str) -> None:
    resources = everything(applied)
    policies = of_kind(resources, "NetworkPolicy")
    for policy in policies:
        assert selected(resources, policy["spec"]["podSelector"]), f"{policy['metadata']['name']} selects nothing"
        for port in (node for node in walk(policy) if isinstance(node, dict) and "protocol" in node):
            assert isinstance(port.get("port"), int | None) or any(
                port["port"] in ports(pod) for pod in pods(resources)
            )

    def named(pod: str, port: str) -> int:
        (template,) = selected(resources, {"matchLabels": {NAME: pod}})
        return ports(template)[port]

    def allows(direction: str, pod: str, peer: dict[str, Any], protocol: str, port: str | int | None) -> bool:
        rules = [
            rule
            for policy in policies
            if direction in policy["spec"]["policyTypes"] and selects(policy["spec"]["podSelector"], {NAME: pod})
            for rule in policy["spec"].get(direction.lower(), [])
        ]
        ends = [end for rule in rules if "ports" in rule for end in rule["ports"] if reaches(rule, direction, peer)]
        return any(end["protocol"] == protocol and end.get("port", port) == port for end in ends)

    def reaches(rule: dict[str, Any], direction: str, peer: dict[str, Any]) -> bool:
        others = rule.get("from" if direction == "Ingress" else "to")
        return others is None or any(
            ("podSelector" in other and "pod" in peer and selects(other["podSelector"], {NAME: peer["pod"]}))
            or ("namespaceSelector" in other and selects(other["namespaceSelector"], peer.get("namespace", {})))
            for other in others
        )

    worker, coordinator, client = "espalier-worker", "espalier-coordinator", "espalier-client"
    assert named(coordinator, "grpc") == 4770
    for caller in (worker, client):
        assert allows("Egress", caller, {"pod": coordinator}, "TCP", "grpc")
        assert allows("Ingress", coordinator, {"pod": caller}, "TCP", "grpc")
        assert allows("Egress", caller, {}, "UDP", 53)
    assert allows("Egress", worker, {"pod": worker}, "TCP", 40000)
    assert allows("Ingress", worker, {"pod": worker}, "TCP", 40000)
    monitoring = {"namespace": {"kubernetes.io/metadata.name": "monitoring"}}
    for pod in (worker, coordinator):
        assert allows("Ingress", pod, monitoring, "TCP", "metrics")
    assert not allows("Ingress", worker, {"pod": client}, "TCP", 40000)
    assert not allows("Ingress", coordinator, monitoring, "TCP", "grpc")
    assert not allows("Ingress", coordinator, {"pod": "somebody"}, "TCP", "grpc")
    assert not allows("Ingress", coordinator, {"namespace": {"kubernetes.io/metadata.name": "x"}}, "TCP", "metrics")
    for pod in (worker, coordinator, client):
        assert not allows("Egress", pod, {"pod": "somebody"}, "TCP", 443)


def test_ports_agree(resources: list[Resource]) -> None:
    for service in of_kind(resources, "Service"):
        (pod,) = selected(resources, {"matchLabels": service["spec"]["selector"]})
        for port in service["spec"]["ports"]:
            assert ports(pod)[port["targetPort"]] == port["port"]
    for workload in of_kind(resources, "StatefulSet"):
        assert workload["spec"]["serviceName"] in [s["metadata"]["name"] for s in of_kind(resources, "Service")]
    for monitor in of_kind(resources, "PodMonitor"):
        found = selected(resources, monitor["spec"]["selector"])
        assert len(found) == 2
        assert all(end["port"] in ports(pod) for end in monitor["spec"]["podMetricsEndpoints"] for pod in found)
        assert monitor["spec"]["jobLabel"] == NAME  # the names that rules and dashboard have
    for pod in pods(resources):
        for container in pod["spec"]["containers"]:
            listening = {p["name"]: p["containerPort"] for p in container.get("ports", [])}
            environment = {e["name"]: e.get("value", "") for e in container["env"]}
            for name, option in (("grpc", "ESPALIER_LISTEN"), ("metrics", "ESPALIER_METRICS_LISTEN")):
                assert environment.get(option, "") == (f"0.0.0.0:{listening[name]}" if name in listening else "")
            for probe in (container[p] for p in ("startupProbe", "readinessProbe", "livenessProbe") if p in container):
                assert probe.get("grpc", {}).get("port", 4770) in listening.values() or "grpc" not in probe
                assert "httpGet" not in probe or probe["httpGet"]["port"] in listening


def test_probes_ask_for_services_that_are_there(tmp_path: Path) -> None:
    asked = {
        node["grpc"].get("service", "")
        for node in walk(render(FOLDER / "base"))
        if isinstance(node, dict) and isinstance(node.get("grpc"), dict)
    }
    assert "espalier.v1.SparsificationService" in asked
    with Cluster(tmp_path, workers=0) as cluster, grpc.insecure_channel(cluster.address) as channel:
        served = set(ProtoReflectionDescriptorDatabase(channel).get_services())
        assert asked - {""} <= served


def test_the_job_dials_the_service_of_the_coordinator() -> None:
    resources = everything("base")
    services = {s["metadata"]["name"]: s for s in of_kind(resources, "Service")}
    for pod in pods(resources):
        for variable in (e for c in pod["spec"]["containers"] for e in c["env"] if e["name"] == "ESPALIER_COORDINATOR"):
            name, port = variable["value"].split(":")
            assert int(port) in [p["port"] for p in services[name]["spec"]["ports"]]


def test_options_variables_and_images_exist(resources: list[Resource]) -> None:
    helps = {p: espalier("--help", program=BIN / p).out for p in ("espalier-coordinator", "espalier-worker")}
    helps["sh"] = espalier("submit", "--help").out + espalier("--help").out
    for pod in pods(resources):
        for container in pod["spec"]["containers"]:
            said = helps[container["command"][0]]
            for name in (e["name"] for e in container["env"]):
                assert re.search(rf"\b{name}\b", said), name
            script = " ".join(container["command"]) + " " + " ".join(container.get("args", []))
            for option in re.findall(r"(?<![\w-])--[a-z-]+", script):
                assert re.search(rf"(?<![\w-]){option}\b", said), option
            name, tag = container["image"].split(":")
            assert name in ("espalier", "espalier-worker")
            assert tag in (version(), f"{version()}-cuda")
            for path in (node for node in walk(container) if isinstance(node, str) and node.startswith("/usr/lib/")):
                assert path in (ROOT / "deploy/docker/Dockerfile").read_text()


def test_every_pod_keeps_to_the_restricted_profile(resources: list[Resource]) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted, and a read-only root."""
    for pod in pods(resources):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 10001  # the account of the images
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert all("hostPath" not in volume for volume in spec["volumes"])
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
            assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("applied", APPLIED)
def test_volumes_claims_and_accounts_exist(applied: str) -> None:
    resources = everything(applied) + ([] if applied != "job" else render(FOLDER / "base"))
    there = {identity(resource) for resource in resources}
    for pod in pods(resources):
        assert ("ServiceAccount", pod["spec"]["serviceAccountName"]) in there
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        assert {m["name"] for c in pod["spec"]["containers"] for m in c["volumeMounts"]} == set(volumes)
        for volume in volumes.values():
            if claim := volume.get("persistentVolumeClaim"):
                assert ("PersistentVolumeClaim", claim["claimName"]) in there
            if configmap := volume.get("configMap"):
                assert ("ConfigMap", configmap["name"]) in there


def test_state_is_written_by_one_coordinator_and_outlives_it() -> None:
    resources = render(FOLDER / "base")
    (coordinator,) = of_kind(resources, "Deployment")
    assert coordinator["spec"]["replicas"] == 1
    assert coordinator["spec"]["strategy"] == {"type": "Recreate"}
    (container,) = coordinator["spec"]["template"]["spec"]["containers"]
    environment = {e["name"]: e.get("value") for e in container["env"]}
    mounts = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
    volumes = {v["name"]: v for v in coordinator["spec"]["template"]["spec"]["volumes"]}
    assert "persistentVolumeClaim" in volumes[mounts[environment["ESPALIER_STATE_DIR"]]]


def test_programs_end_within_the_grace_of_their_pods(resources: list[Resource]) -> None:
    default = re.search(r"--stop-grace \w+=(\d+)s", espalier("--help", program=BIN / "espalier-worker").out)
    assert default
    for workload in of_kind(resources, "Deployment", "StatefulSet"):
        assert workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= 2 * int(default.group(1))


def test_the_recipe_of_the_job_prunes_projections(tmp_path: Path) -> None:
    (recipe,) = of_kind(render(FOLDER / "job"), "ConfigMap")
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe["data"]["recipe.yaml"])
    weights = {f"l.{name}.weight": bf16(np.ones((8, 8), "<f4")) for name in ("q_proj", "norm")}
    plan = espalier("plan", path, "--model", make_checkpoint(tmp_path / "m", weights)).out
    assert "l.q_proj.weight" in plan
    assert "l.norm.weight" not in plan
