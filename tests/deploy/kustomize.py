"""The part of kustomize that deploy/kubernetes uses, as `kubectl kustomize` does it, for machines without kubectl.

Debian 12's kubectl is of 2020 and knows no components. Everything that is not understood is an error, and where a newer
kubectl is there, a test compares the two.
"""

import copy
from pathlib import Path
from typing import Any

import yaml

Resource = dict[str, Any]
# The list entries that strategic merge patches find by a key; all other lists are replaced.
MERGE_KEYS = {
    "containers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
}


def render(folder: Path) -> list[Resource]:
    spec = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert spec.pop("kind") in ("Kustomization", "Component")
    assert spec.pop("apiVersion").startswith("kustomize.config.k8s.io/")
    resources = [r for name in spec.pop("resources", []) for r in load(folder / name)]
    for name in spec.pop("components", []):
        resources += render((folder / name).resolve())
    for generator in spec.pop("configMapGenerator", []):
        data = {name: (folder / name).read_text() for name in generator["files"]}
        resources.append(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]}, "data": data}
        )
    for patch in spec.pop("patches", []):
        for change in yaml.safe_load_all((folder / patch["path"]).read_text()):
            (index,) = [i for i, r in enumerate(resources) if identity(r) == identity(change)]
            resources[index] = merged(resources[index], change)
    for image in spec.pop("images", []):
        retag(resources, image["name"], image["newTag"])
    namespace = spec.pop("namespace", None)
    assert not spec, f"{folder}: this renderer does not know {sorted(spec)}"
    for resource in resources if namespace else []:
        if resource["kind"] != "Namespace":
            resource["metadata"]["namespace"] = namespace
    return resources


def load(path: Path) -> list[Resource]:
    if path.is_dir():
        return render(path.resolve())
    # Anchors make shared objects, which patches must not change together.
    return [copy.deepcopy(document) for document in yaml.safe_load_all(path.read_text())]


def identity(resource: Resource) -> tuple[str, str]:
    return resource["kind"], resource["metadata"]["name"]


def merged(base: Any, change: Any, key: str = "") -> Any:
    if isinstance(base, dict) and isinstance(change, dict):
        both = {name: merged(value, change[name], name) if name in change else value for name, value in base.items()}
        return both | {name: value for name, value in change.items() if name not in base}
    if isinstance(base, list) and key in MERGE_KEYS:
        by = MERGE_KEYS[key]
        changes = {entry[by]: entry for entry in change}
        kept = [merged(entry, changes.pop(entry[by])) if entry[by] in changes else entry for entry in base]
        return list(changes.values()) + kept  # as kustomize does: what is new comes first
    return change


def retag(node: Any, name: str, tag: str) -> None:
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        retag(child, name, tag)
    if isinstance(node, dict) and str(node.get("image", "")).rsplit(":", 1)[0] == name:
        node["image"] = f"{name}:{tag}"
