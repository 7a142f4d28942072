"""Short constructors of the objects that the lab serves, all in the namespace `default`."""

import itertools
import json

from headgate.resources.pods import EXCLUDED_PORTS, PROBES, SIDECAR

_AGES = itertools.count()


def an_object(version, kind, name, *, metadata=None, **content):
    made = {"name": name, "namespace": "default", "creationTimestamp": f"2026-01-01T00:00:{next(_AGES) % 60:02}Z"}
    return {"apiVersion": version, "kind": kind, "metadata": made | (metadata or {}), **content}


def service(name, address, ports):
    """Return a Service; `ports` are (port, appProtocol) by name. Without an address it is headless."""
    written = [{"name": key, "port": port, "appProtocol": app} for key, (port, app) in ports.items()]
    return an_object("v1", "Service", name, spec={"clusterIP": address or "None", "ports": written})


def endpoints(name, pods, ports):
    """Return the EndpointSlice of a Service; `ports` are the pods' ports by the names of the Service's ports."""
    places = [
        {
            "addresses": [pod.address],
            "conditions": {"ready": True},
            "targetRef": {"kind": "Pod", "name": pod.name, "namespace": "default"},
        }
        for pod in pods
    ]
    return an_object(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        name,
        metadata={"labels": {"kubernetes.io/service-name": name}},
        addressType="IPv6" if ":" in pods[0].address else "IPv4",
        endpoints=places,
        ports=[{"name": key, "port": port} for key, port in ports.items()],
    )


def served(name, address, pods, *, port, target, app="http"):
    """Return a Service with one port, and its EndpointSlice."""
    return service(name, address, {"main": (port, app)}), endpoints(name, pods, {"main": target})


def pod(name, address, *, account, sidecar=True, labels=None, excluded="", probe=None):
    """Return a running pod that declares no port (D26).

    `probe` is the (port, path) of its readiness probe. Then the pod has two TCP probes too: the liveness
    probe of the same port, and the startup probe of the port 7999, on which nothing listens.
    """
    annotations = ({SIDECAR: "transparent"} if sidecar else {}) | ({EXCLUDED_PORTS: excluded} if excluded else {})
    if probe:
        checks = {
            "app/readinessProbe": {"httpGet": {"port": probe[0], "path": probe[1]}},
            "app/livenessProbe": {"tcpSocket": {"port": probe[0]}, "periodSeconds": 1},
            "app/startupProbe": {"tcpSocket": {"port": 7999}, "periodSeconds": 1},
        }
        annotations[PROBES] = json.dumps(checks)
    return an_object(
        "v1",
        "Pod",
        name,
        metadata={"annotations": annotations, "labels": labels or {}},
        spec={"serviceAccountName": account, "containers": [{"name": "app"}]},
        status={"podIP": address, "phase": "Running"},
    )


def strict(name, labels, *subjects):
    """Return a TLSConfig for the pods with these labels."""
    spec = {"selector": {"matchLabels": labels}, "subjectNames": list(subjects)}
    return an_object("headgate.dev/v1beta1", "TLSConfig", name, spec=spec)


def split(name, root, **weights):
    backends = [{"service": backend.replace("_", "-"), "weight": weight} for backend, weight in weights.items()]
    return an_object("split.smi-spec.io/v1alpha4", "TrafficSplit", name, spec={"service": root, "backends": backends})


def mirror(name, root, port, copy):
    """Return an HTTPRoute that mirrors the requests of the Service `root` to the Service `copy`."""
    rule = {
        "backendRefs": [{"name": root, "port": port}],
        "filters": [{"type": "RequestMirror", "requestMirror": {"backendRef": {"name": copy, "port": port}}}],
    }
    parent = {"group": "", "kind": "Service", "name": root}
    spec = {"parentRefs": [parent], "rules": [rule]}
    return an_object("gateway.networking.k8s.io/v1", "HTTPRoute", name, spec=spec)


def requests(name, **matches):
    """Return an HTTPRouteGroup; `matches` are (methods, pathRegex) by name."""
    written = [{"name": key, "methods": list(methods), "pathRegex": path} for key, (methods, path) in matches.items()]
    return an_object("specs.smi-spec.io/v1alpha4", "HTTPRouteGroup", name, spec={"matches": written})


def connections(name, *ports):
    return an_object("specs.smi-spec.io/v1alpha4", "TCPRoute", name, spec={"matches": {"ports": list(ports)}})


def target(name, destination, sources, *rules):
    """Return a TrafficTarget; `rules` are (kind, name)."""

    def account(of):
        return {"kind": "ServiceAccount", "name": of, "namespace": "default"}

    spec = {
        "destination": account(destination),
        "sources": [account(source) for source in sources],
        "rules": [{"kind": kind, "name": rule} for kind, rule in rules],
    }
    return an_object("access.smi-spec.io/v1alpha3", "TrafficTarget", name, spec=spec)
