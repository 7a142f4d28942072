"""Small worlds of Services, pods and policies for tests."""

from headgate.compiler.compile import compile_mesh
from headgate.model.check import check
from headgate.plane.feed import snapshot_of
from headgate.resources.registry import KINDS, find_written
from headgate.settings import Settings

HUBS = {kind.kind: kind.hub for kind in KINDS if not (kind.kind == "TCPRoute" and "specs" not in kind.group)}


def obj(kind, name, *, namespace="default", labels=None, annotations=None, created="", **more):
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": created}
    metadata |= {"labels": labels} if labels else {}
    metadata |= {"annotations": annotations} if annotations else {}
    return {"apiVersion": HUBS[kind], "kind": kind, "metadata": metadata, **more}


def pod(name, address, *, account="web", sidecar="transparent", annotations=None, containers=(), **more):
    found = dict(annotations or {})
    if sidecar:
        found["headgate.dev/sidecar"] = sidecar
    spec = {"serviceAccountName": account, "containers": [{"name": "app"}, *containers]}
    status = {"podIP": address, "phase": "Running"}
    return obj("Pod", name, annotations=found, spec=spec, status=status, **more)


def service(name, *pods, port=8080, app="http", behind=None, of=None, namespace="default", created=""):
    """Return a Service and its EndpointSlice; `pods` are pairs of pod name (None: only an address) and address."""
    ports = [{"name": "main", "port": port} | ({"appProtocol": app} if app else {})]
    endpoints = [
        {"addresses": [address]}
        | ({"targetRef": {"kind": "Pod", "name": target, "namespace": of or namespace}} if target else {})
        for target, address in pods
    ]
    yield obj("Service", name, namespace=namespace, created=created, spec={"ports": ports})
    yield obj(
        "EndpointSlice",
        name,
        namespace=namespace,
        labels={"kubernetes.io/service-name": name},
        addressType="IPv4",
        endpoints=endpoints,
        ports=[{"name": "main", "port": behind or port}],
    )


def target(name, account, *sources, rules=(), **destination):
    spec = {
        "destination": {"kind": "ServiceAccount", "name": account, **destination},
        "sources": [{"kind": "ServiceAccount", "name": source} for source in sources],
        "rules": list(rules),
    }
    return obj("TrafficTarget", name, spec=spec)


def config(name, labels, *subjects):
    return obj("TLSConfig", name, spec={"selector": {"matchLabels": labels}, "subjectNames": list(subjects)})


def compiled(*objects, tls_modes=None, **settings):
    keyed = {}
    for item in objects:
        kind = find_written(item["apiVersion"], item["kind"])
        keyed[kind.key(item["metadata"]["namespace"], item["metadata"]["name"])] = item
    result = compile_mesh(snapshot_of(keyed), Settings(**settings), tls_modes or {})
    assert check(result.mesh) == ()
    return result


def workloads(result):
    return {item.name.partition("/")[2]: item for item in result.mesh.workloads}


def identities(result):
    return {(str(entry.ref), place.address): place.identity for entry in result.mesh.endpoints for place in entry.ready}


def findings(result, reason):
    return [item for item in result.report.findings if item.reason is reason]
