"""Build the manifests that the end-to-end tests apply, as JSON text."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.protocols import HasAddress
from tests.wire import Backend

POD = Path(__file__).parent / "pod.py"


def split(name: str, service: str, weights: Mapping[str, Any], *, version: str = "split.smi-spec.io/v1alpha4") -> str:
    """Return a TrafficSplit; `weights` maps each backend to its weight."""
    backends = [{"service": backend, "weight": weight} for backend, weight in weights.items()]
    return _text(version, "TrafficSplit", name, spec={"service": service, "backends": backends})


def annotated(manifest: str, **annotations: str) -> str:
    """Add annotations `headgate.dev/NAME`, in which `-` replaces each `_` of the argument's name."""
    obj = json.loads(manifest)
    named = {f"headgate.dev/{name.replace('_', '-')}": text for name, text in annotations.items()}
    return json.dumps(obj | {"metadata": obj["metadata"] | {"annotations": named}})


def service(name: str, ports: Mapping[str, int], *, selector: Mapping[str, str] | None = None, **spec: Any) -> str:
    """Return a Service with named ports; without `selector` its endpoints come from `endpoints`."""
    written = [{"name": port, "port": number} for port, number in ports.items()]
    selected = {"selector": dict(selector)} if selector else {}
    return _text("v1", "Service", name, spec={"ports": written, **selected, **spec})


def endpoints(name: str, ports: Mapping[str, Sequence[Backend]], *, ready: bool = True) -> str:
    """Return EndpointSlices that send the ports of a Service to backends in the test's process."""
    slices = [
        _object(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            f"{name}-{port}-{index}",
            metadata={"labels": {"kubernetes.io/service-name": name}},
            addressType="IPv4",
            ports=[{"name": port, "port": backend.address.port, "protocol": "TCP"}],
            endpoints=[{"addresses": [backend.address.host], "conditions": {"ready": ready}}],
        )
        for port, backends in ports.items()
        for index, backend in enumerate(backends)
    ]
    return "\n---\n".join(map(json.dumps, slices))


def external(name: str, *backends: Backend, port: int = 8080) -> str:
    """Return a Service of one port, without selector, whose endpoints are backends in the test's process."""
    written = service(name, {"http": port})
    return f"{written}\n---\n{endpoints(name, {'http': backends})}" if backends else written


def deployment(
    name: str, count_in: Path, *, labels: Mapping[str, str], ports: Mapping[str, int], replicas: int = 1
) -> str:
    """Return a Deployment whose pods answer with its name on `ports` and count requests in the file `count_in`."""
    container = {
        "name": "app",
        "image": "python:3",
        "command": [sys.executable, "-I", "-S", str(POD)],
        "env": [{"name": "NAME", "value": name}, {"name": "COUNT", "value": str(count_in)}],
        "ports": [{"name": port, "containerPort": number} for port, number in ports.items()],
    }
    template = {"metadata": {"labels": dict(labels)}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": dict(labels)}, "template": template}
    return _text("apps/v1", "Deployment", name, spec=spec)


def grant(name: str, *, source: str, to: str = "") -> str:
    """Return a ReferenceGrant from TrafficSplits of the namespace `source` to the Service `to` (empty: to all)."""
    target = {"group": "", "kind": "Service"} | ({"name": to} if to else {})
    origin = {"group": "split.smi-spec.io", "kind": "TrafficSplit", "namespace": source}
    return _text("gateway.networking.k8s.io/v1", "ReferenceGrant", name, spec={"from": [origin], "to": [target]})


def _text(version: str, kind: str, name: str, **content: Any) -> str:
    return json.dumps(_object(version, kind, name, **content))


def _object(version: str, kind: str, name: str, *, metadata: Mapping[str, Any] | None = None, **content: Any) -> Any:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **(metadata or {})}, **content}


def protocol_service(name: str, *backends: HasAddress, app: str = "", port_name: str = "main", port: int = 9000) -> str:
    """Return a Service of one port with an appProtocol, whose endpoints are servers in the test's process."""
    written = json.loads(service(name, {port_name: port}))
    if app:
        written["spec"]["ports"][0]["appProtocol"] = app
    return json.dumps(written) + "\n---\n" + endpoints(name, {port_name: backends})
