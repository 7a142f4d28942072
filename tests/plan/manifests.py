"""Short manifests for tests of plans, and the plan of a change of them."""

from pathlib import Path

import yaml

from headgate.cli.offline import compile_manifests
from headgate.manifests.files import read
from headgate.plan.plan import World, plan
from headgate.settings import Settings

SERVICES = """
apiVersion: v1
kind: Service
metadata: {name: website}
spec: {selector: {app: website}, ports: [{name: http, port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: v1}
spec: {selector: {app: website, version: v1}, ports: [{name: http, port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: v2}
spec: {selector: {app: website, version: v2}, ports: [{name: http, port: 8080}]}
"""


def split(v1, v2, *, name="website", group="", **annotations):
    backends = [{"service": service, "weight": weight} for service, weight in (("v1", v1), ("v2", v2))]
    matches = {"matches": [{"kind": "HTTPRouteGroup", "name": group}]} if group else {}
    spec = {"service": "website", "backends": backends, **matches}
    metadata = {"name": name, "annotations": {f"headgate.dev/{key}": value for key, value in annotations.items()}}
    return yaml.safe_dump(
        {"apiVersion": "split.smi-spec.io/v1alpha4", "kind": "TrafficSplit", "metadata": metadata, "spec": spec}
    )


def group(name, **match):
    spec = {"matches": [{"name": "m", **match}]}
    return yaml.safe_dump(
        {
            "apiVersion": "specs.smi-spec.io/v1alpha4",
            "kind": "HTTPRouteGroup",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def route(*rules):
    """Return an HTTPRoute for the Service website."""
    spec = {"parentRefs": [{"group": "", "kind": "Service", "name": "website", "port": 8080}], "rules": list(rules)}
    metadata = {"name": "website"}
    return yaml.safe_dump(
        {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": metadata, "spec": spec}
    )


def rule(path="", *, v1=0, v2=0, **fields):
    """Return a rule of an HTTPRoute with a path prefix and weights of backends."""
    backends = [{"name": name, "port": 8080, "weight": weight} for name, weight in (("v1", v1), ("v2", v2)) if weight]
    matches = {"matches": [{"path": {"type": "PathPrefix", "value": path}}]} if path else {}
    return {**matches, "backendRefs": backends, **fields}


def deployment(name, **labels):
    pod = {"serviceAccountName": name, "containers": [{"name": "app", "ports": [{"containerPort": 8080}]}]}
    spec = {
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name, **labels}}, "spec": pod},
    }
    service = {"selector": {"app": name}, "ports": [{"name": "http", "port": 8080}]}
    return yaml.safe_dump_all(
        [
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": service},
        ]
    )


def target(name, *callers, server="shop", group="g"):
    spec = {
        "destination": {"kind": "ServiceAccount", "name": server},
        "sources": [{"kind": "ServiceAccount", "name": caller} for caller in callers],
        "rules": [{"kind": "HTTPRouteGroup", "name": group}],
    }
    return yaml.safe_dump(
        {
            "apiVersion": "access.smi-spec.io/v1alpha3",
            "kind": "TrafficTarget",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def compiled(directory: Path, *texts, **settings):
    """Return the compiled texts of manifests, each of which may have several documents."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(texts):
        (directory / f"{number}.yaml").write_text(text)
    found = read([directory])
    assert not found.problems, found.problems
    return compile_manifests(found, Settings(**settings))


def planned(directory: Path, before, after, **settings):
    """Return the plan of a change between two lists of texts."""
    one, other = (
        compiled(directory / name, *texts, **settings) for name, texts in (("before", before), ("after", after))
    )
    objects = [{item.key: item.object for item in found.manifests.objects} for found in (one, other)]
    keys = objects[0].keys() | objects[1].keys()
    changed = {key for key in keys if objects[0].get(key) != objects[1].get(key)}
    return plan(World(one.compiled, other.compiled, changed, known=objects[1].keys()))
