"""Build the manifests that the end-to-end tests apply: text that names no namespace, so that a test chooses it."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.make import objects
from tests.make.objects import Object, manifest
from tests.protocols import HasAddress

HERE = Path(__file__).parent
POD = HERE / "pod.py"
HTTP_PORT = {"http": 8080}


def split_manifest(name: str, service: str, weights: Mapping[str, Any], *, version: str = "") -> str:
    """Return a TrafficSplit; `weights` maps each backend to its weight."""
    return manifest(objects.split(service, weights, name=name, version=version, namespace=""))


def annotated(written: str, **annotations: str) -> str:
    """Add annotations `headgate.dev/NAME`, in which `-` replaces each `_` of the argument's name."""
    obj = json.loads(written)
    return manifest(obj | {"metadata": obj["metadata"] | {"annotations": objects.headgate_keys(**annotations)}})


def service_manifest(
    name: str, ports: Mapping[str, int], *, selector: Mapping[str, str] | None = None, app: str = "", **spec: Any
) -> str:
    """Return a Service with named ports; without `selector` its endpoints come from `endpoints`. `app` is appProtocol."""
    numbered = [objects.port(number, port, app=app) for port, number in ports.items()]
    return manifest(objects.service(name, *numbered, selector=selector, namespace="", **spec))


def endpoints(name: str, ports: Mapping[str, Sequence[HasAddress]], *, ready: bool = True) -> str:
    """Return EndpointSlices that send the ports of a Service to servers in the test's process."""
    return manifest(
        *(
            objects.endpoint_slice(
                name,
                [objects.endpoint(backend.address.host, ready=ready)],
                {port: backend.address.port},
                name=f"{name}-{port}-{index}",
                namespace="",
            )
            for port, backends in ports.items()
            for index, backend in enumerate(backends)
        )
    )


def external(name: str, *backends: HasAddress, port: int = 8080) -> str:
    """Return a Service of one port, without selector, whose endpoints are servers in the test's process."""
    return protocol_service(name, *backends, port_name="http", port=port)


def protocol_service(name: str, *backends: HasAddress, app: str = "", port_name: str = "main", port: int = 9000) -> str:
    """Return a Service of one port with an appProtocol, whose endpoints are servers in the test's process."""
    written = service_manifest(name, {port_name: port}, app=app)
    return f"{written}\n---\n{endpoints(name, {port_name: backends})}" if backends else written


def counting_deployment(
    name: str, count_in: Path, *, labels: Mapping[str, str], ports: Mapping[str, int], replicas: int = 1, **pod: Any
) -> str:
    """Return a Deployment whose pods answer with its name on `ports` and count requests in the file `count_in`.

    `pod` has further arguments of `tests.make.objects.pod_template`.
    """
    declared = [{"name": port, "containerPort": number} for port, number in ports.items()]
    container = _python(POD, {"NAME": name, "COUNT": str(count_in)}, declared)
    return manifest(objects.deployment(name, container, labels=labels, replicas=replicas, template=pod, namespace=""))


def program_deployment(name: str, program: str, *, replicas: int = 1, **environment: str) -> str:
    """Return a Deployment that runs a program of this directory; all but `caller.py` serve port 8080."""
    calls = program == "caller.py"
    container = _python(HERE / program, environment, [] if calls else [{"name": "http", "containerPort": 8080}])
    # During a rolling update, two pods would carry out the same plan.
    strategy = {"strategy": {"type": "Recreate"}} if calls else {}
    made = objects.deployment(
        name, container, replicas=replicas, template={"terminationGracePeriodSeconds": 10}, namespace="", **strategy
    )
    return manifest(made)


def _python(program: Path, environment: Mapping[str, str], ports: Sequence[Mapping[str, Any]]) -> Object:
    variables = [{"name": key, "value": text} for key, text in environment.items()]
    command = [sys.executable, "-E", "-s", "-S", str(program)]
    return objects.container(image="python:3", command=command, env=variables, ports=list(ports))


def split_grant(name: str, *, source: str, to: str = "") -> str:
    """Return a ReferenceGrant from TrafficSplits of the namespace `source` to the Service `to` (empty: to all)."""
    return manifest(
        objects.grant(name, ("split.smi-spec.io", "TrafficSplit", source), ("", "Service"), only=to, namespace="")
    )


def workload(name: str, root: Path) -> str:
    """Return a Deployment and the Service of its pods, which count requests in the file `root/name`."""
    labels = {"app": name}
    return "\n---\n".join(
        [
            service_manifest(name, HTTP_PORT, selector=labels),
            counting_deployment(name, root / name, labels=labels, ports=HTTP_PORT),
        ]
    )


def site(root: Path) -> dict[str, str]:
    """Return manifests of a Service `web` that is split between two Deployments, by file name."""
    return {
        "web.yaml": service_manifest("web", HTTP_PORT),
        "v1.yaml": workload("v1", root),
        "v2.yaml": workload("v2", root),
        "split.yaml": split_manifest("web", "web", {"v1": 3, "v2": 1}),
    }
