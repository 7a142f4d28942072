"""Build Kubernetes-style objects for tests: one function for each kind, all with the same parameters.

`obj` builds an object of any kind: its name first, then `namespace`, `labels`, `annotations` and the other `metadata`, and
the fields of its content. The other functions add what most tests need of a kind; their keywords are further fields of the
spec. A test that needs an object of a certain form in its module derives it from these (`functools.partial`, or a function
that says what is special about it). `manifest` writes objects as text for files and for kubectl.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from headgate.resources.registry import KINDS

Object: TypeAlias = dict[str, Any]

GATEWAY_API = "gateway.networking.k8s.io"
SPECS = "specs.smi-spec.io"
HUBS = {kind.kind: kind.hub for kind in KINDS}
"""The apiVersion of each kind. Kinds of two groups have that of the SMI; the routes of the Gateway API have `GATEWAY_ROUTE`."""
GATEWAY_ROUTE = next(kind.hub for kind in KINDS if (kind.kind, kind.group) == ("TCPRoute", GATEWAY_API))


def obj(
    kind: str,
    name: str,
    *,
    namespace: str = "default",
    version: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **content: Any,
) -> Object:
    """Return an object. `version` is its whole apiVersion, by default the hub; an empty `namespace` leaves the field out."""
    written: Object = {"name": name}
    written |= {"namespace": namespace} if namespace else {}
    written |= {"labels": dict(labels)} if labels else {}
    written |= {"annotations": dict(annotations)} if annotations else {}
    return {"apiVersion": version or HUBS[kind], "kind": kind, "metadata": written | dict(metadata or {}), **content}


META = ("namespace", "version", "labels", "annotations", "metadata", "status")


def with_spec(kind: str, name: str, spec: Mapping[str, Any], more: Mapping[str, Any]) -> Object:
    """Return an object whose spec has `spec` and those fields of `more` that are not parameters of `obj` or its status."""
    meta = {key: more[key] for key in META if key in more}
    return obj(kind, name, spec={**spec, **{key: value for key, value in more.items() if key not in META}}, **meta)


def owner_reference(owner: Mapping[str, Any], **fields: Any) -> Object:
    """Return a reference to a stored object, for `metadata.ownerReferences`."""
    metadata = owner["metadata"]
    named = {"name": metadata["name"], "uid": metadata["uid"]}
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], **named, **fields}


def manifest(*objects: Mapping[str, Any]) -> str:
    """Return objects as YAML documents, each of them one line of JSON."""
    return "\n---\n".join(json.dumps(item) for item in objects)


def headgate_keys(**annotations: str) -> dict[str, str]:
    """Return annotations `headgate.dev/NAME`; `_` in a name stands for `-`."""
    return {f"headgate.dev/{name.replace('_', '-')}": text for name, text in annotations.items()}


# --- Kubernetes: what runs, and how it is reached


def namespace(name: str, **metadata: Any) -> Object:
    """Return a Namespace."""
    return obj("Namespace", name, namespace="", **metadata)


def config_map(name: str, data: Mapping[str, str] | None = None, **metadata: Any) -> Object:
    """Return a ConfigMap."""
    return obj("ConfigMap", name, data=dict(data or {}), **metadata)


def port(number: int, name: str = "", *, app: str = "", target: int | str = "") -> Object:
    """Return a port of a Service: `app` is its appProtocol, `target` its targetPort."""
    more = {"name": name, "appProtocol": app, "targetPort": target}
    return {"port": number} | {key: value for key, value in more.items() if value}


def service(
    name: str, *ports: int | Mapping[str, Any], selector: Mapping[str, str] | None = None, **more: Any
) -> Object:
    """Return a Service; a number as port gets the name `pNUMBER`. Without ports it has one, `http` 8080."""
    written = [port(item, f"p{item}") if isinstance(item, int) else dict(item) for item in ports]
    selected = {"selector": dict(selector)} if selector else {}
    return with_spec("Service", name, {"ports": written or [port(8080, "http")], **selected}, more)


def endpoint(address: str, pod: str = "", *, namespace: str = "default", ready: bool = True, **more: Any) -> Object:
    """Return an endpoint of an EndpointSlice; `pod` is the name of the pod that has the address."""
    target = {"targetRef": {"kind": "Pod", "name": pod, "namespace": namespace}} if pod else {}
    return {"addresses": [address], "conditions": {"ready": ready}, **target, **more}


def endpoint_slice(
    of: str,
    endpoints: Sequence[str | Mapping[str, Any]],
    ports: Mapping[str, int | str],
    *,
    name: str = "",
    **metadata: Any,
) -> Object:
    """Return an EndpointSlice of the Service `of`. `endpoints` has addresses or values of `endpoint`; all of one family."""
    places = [endpoint(item) if isinstance(item, str) else dict(item) for item in endpoints]
    labels = {"kubernetes.io/service-name": of, **metadata.pop("labels", {})}
    return obj(
        "EndpointSlice",
        name or of,
        labels=labels,
        addressType="IPv6" if any(":" in address for place in places for address in place["addresses"]) else "IPv4",
        endpoints=places,
        ports=[{"name": key, "port": number} for key, number in ports.items()],
        **metadata,
    )


def backed_service(
    name: str,
    *pods: tuple[str, str],
    number: int = 8080,
    app: str = "http",
    target: int = 0,
    of: str = "",
    namespace: str = "default",
    **more: Any,
) -> tuple[Object, Object]:
    """Return a Service with one port, `main`, and its EndpointSlice.

    `pods` has the name and address of each pod, an empty name for an address without a pod. `number` is the port's number,
    `app` its appProtocol and `target` its port in the pods if it is another one. `of` is the pods' namespace if it is
    another one.
    """
    places = [endpoint(address, pod, namespace=of or namespace) for pod, address in pods]
    return (
        service(name, port(number, "main", app=app), namespace=namespace, **more),
        endpoint_slice(name, places, {"main": target or number}, namespace=namespace),
    )


def container(name: str = "app", *ports: int, **fields: Any) -> Object:
    """Return a container of a pod, which declares `ports`."""
    return {"name": name} | ({"ports": [{"containerPort": number} for number in ports]} if ports else {}) | fields


def pod(
    name: str,
    address: str = "",
    *,
    account: str = "",
    containers: Sequence[Mapping[str, Any]] = (),
    status: Mapping[str, Any] | None = None,
    **more: Any,
) -> Object:
    """Return a pod, by default with one container, `app`. With an address it runs and is ready."""
    spec: Object = {"containers": [dict(item) for item in containers] or [container()]}
    spec |= {"serviceAccountName": account} if account else {}
    running = {"phase": "Running", "podIP": address, "conditions": [{"type": "Ready", "status": "True"}]}
    state = {**(running if address else {}), **(status or {})}
    return with_spec("Pod", name, spec, {**more, **({"status": state} if state else {})})


def meshed_pod(name: str, address: str, *, account: str = "web", mode: str = "transparent", **more: Any) -> Object:
    """Return a pod with a sidecar. `mode` is `transparent` or `explicit`; an empty one leaves the sidecar out."""
    annotations = {**more.pop("annotations", {}), **(headgate_keys(sidecar_mode=mode) if mode else {})}
    return pod(name, address, account=account, annotations=annotations, **more)


def pod_template(
    *containers: Mapping[str, Any],
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    account: str = "",
    **spec: Any,
) -> Object:
    """Return the pod template of a Deployment."""
    metadata: Object = {"labels": dict(labels)} | ({"annotations": dict(annotations)} if annotations else {})
    named = {"serviceAccountName": account} if account else {}
    return {"metadata": metadata, "spec": {"containers": [dict(item) for item in containers], **named, **spec}}


def deployment(
    name: str,
    *containers: Mapping[str, Any],
    labels: Mapping[str, str] | None = None,
    replicas: int = 1,
    template: Mapping[str, Any] | None = None,
    **more: Any,
) -> Object:
    """Return a Deployment. `labels` has those of its pods and its selector, by default `app: NAME`.

    `template` has further arguments of `pod_template`.
    """
    chosen = dict(labels or {"app": name})
    written = pod_template(*(containers or (container(),)), **{"labels": chosen, **(template or {})})
    spec = {"replicas": replicas, "selector": {"matchLabels": chosen}, "template": written}
    return with_spec("Deployment", name, spec, more)


# --- SMI


def split(root: str, weights: Mapping[str, Any], *, name: str = "", matches: Iterable[str] = (), **more: Any) -> Object:
    """Return a TrafficSplit of the Service `root`; `matches` has names of HTTPRouteGroups."""
    backends = [{"service": service, "weight": weight} for service, weight in weights.items()]
    groups = [{"kind": "HTTPRouteGroup", "name": group} for group in matches]
    spec = {"service": root, "backends": backends, **({"matches": groups} if groups else {})}
    return with_spec("TrafficSplit", name or root, spec, more)


def http_route_group(name: str, matches: Mapping[str, Mapping[str, Any]], **more: Any) -> Object:
    """Return an HTTPRouteGroup; `matches` has the fields of each match by its name."""
    written = [{"name": key, **fields} for key, fields in matches.items()]
    return with_spec("HTTPRouteGroup", name, {"matches": written}, more)


def smi_tcp_route(name: str, *ports: int, **more: Any) -> Object:
    """Return a TCPRoute of the SMI."""
    return with_spec("TCPRoute", name, {"matches": {"ports": list(ports)}}, more)


def account_ref(name: str, namespace: str = "default") -> Object:
    """Return a reference to a ServiceAccount; an empty namespace leaves the field out."""
    return {"kind": "ServiceAccount", "name": name} | ({"namespace": namespace} if namespace else {})


def traffic_target(
    name: str,
    destination: str | Mapping[str, Any],
    sources: Iterable[str | Mapping[str, Any]],
    rules: Iterable[Mapping[str, Any]] = (),
    **more: Any,
) -> Object:
    """Return a TrafficTarget; accounts are names in the namespace `default`, or values of `account_ref`."""
    to, *callers = (account_ref(item) if isinstance(item, str) else dict(item) for item in (destination, *sources))
    return with_spec("TrafficTarget", name, {"destination": to, "sources": callers, "rules": list(rules)}, more)


def authorization_policy(name: str, labels: Mapping[str, str], *rules: Mapping[str, Any], **more: Any) -> Object:
    """Return an XAuthorizationPolicy of the pods with `labels`; rules are values of `caller_rule`."""
    target = {"group": "", "kind": "Pod", "selector": {"matchLabels": dict(labels)}}
    return with_spec(
        "XAuthorizationPolicy", name, {"targetRefs": [target], "action": "ALLOW", "rules": list(rules)}, more
    )


def caller_rule(*callers: str, ports: Iterable[int] = ()) -> Object:
    """Return a rule of an XAuthorizationPolicy: callers are SPIFFE IDs, or names of ServiceAccounts, as `name` or `namespace/name`."""
    rule: Object = {"sources": list(map(_source, callers))}
    return rule | ({"networkAttributes": {"ports": list(ports)}} if ports else {})


def _source(caller: str) -> Object:
    if caller.startswith("spiffe://"):
        return {"type": "SPIFFE", "spiffe": caller}
    namespace, _, name = caller.rpartition("/")
    return {
        "type": "ServiceAccount",
        "serviceAccount": {"name": name} | ({"namespace": namespace} if namespace else {}),
    }


def http_rule(group: str, *matches: str) -> Object:
    """Return a rule of a TrafficTarget that names an HTTPRouteGroup, and some of its matches."""
    return {"kind": "HTTPRouteGroup", "name": group} | ({"matches": list(matches)} if matches else {})


def tcp_rule(route: str) -> Object:
    """Return a rule of a TrafficTarget that names a TCPRoute."""
    return {"kind": "TCPRoute", "name": route}


# --- Gateway API


def listener(number: int = 80, name: str = "http", *, protocol: str = "HTTP", **fields: Any) -> Object:
    """Return a listener of a Gateway."""
    return {"name": name, "port": number, "protocol": protocol, **fields}


def gateway(name: str, *listeners: Mapping[str, Any], class_name: str = "headgate", **more: Any) -> Object:
    """Return a Gateway, by default with one HTTP listener on port 80."""
    spec = {"gatewayClassName": class_name, "listeners": [dict(item) for item in listeners] or [listener()]}
    return with_spec("Gateway", name, spec, more)


def service_parent(name: str, port: int = 0, **fields: Any) -> Object:
    """Return a parentRef to a Service, with a port unless it is 0."""
    return {"group": "", "kind": "Service", "name": name} | ({"port": port} if port else {}) | fields


def backend_ref(name: str, port: int = 8080, **fields: Any) -> Object:
    """Return a backendRef of a route."""
    return {"name": name, "port": port, **fields}


def external_backend(name: str, hostname: str, number: int = 443, **spec: Any) -> Object:
    """Return an XBackend: a server outside the mesh with its DNS name and port; `spec` has its protocol and TLS."""
    server = {"type": "ExternalHostname", "externalHostname": {"hostname": hostname}, "port": {"port": number}}
    return obj("XBackend", name, spec={**server, **spec})


def traffic_policy(name: str, *services: str, **more: Any) -> Object:
    """Return an XBackendTrafficPolicy for Services; `more` has its retryConstraint and sessionPersistence."""
    refs = [{"group": "", "kind": "Service", "name": service} for service in services]
    return with_spec("XBackendTrafficPolicy", name, {"targetRefs": refs}, more)


def external_ref(name: str, **fields: Any) -> Object:
    """Return a backendRef to an XBackend."""
    return {"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": name, **fields}


def rule(weights: Mapping[str, int], *, port: int = 8080, **fields: Any) -> Object:
    """Return a rule of a route; `weights` has those of its backends, which all have the port `port`."""
    return {"backendRefs": [backend_ref(name, port, weight=weight) for name, weight in weights.items()], **fields}


def path_match(value: str, kind: str = "PathPrefix", **fields: Any) -> Object:
    """Return a match of a rule by its path."""
    return {"path": {"type": kind, "value": value}, **fields}


def route(
    name: str, *rules: Mapping[str, Any], parents: Sequence[Mapping[str, Any]], kind: str = "HTTPRoute", **more: Any
) -> Object:
    """Return a route of the Gateway API, of another `kind` too. `parents` has its parentRefs: `{"name": GATEWAY}`."""
    if kind in {"TCPRoute", "UDPRoute"}:
        more = {"version": GATEWAY_ROUTE, **more}
    return with_spec(kind, name, {"parentRefs": list(parents), "rules": list(rules)}, more)


def grant(name: str, from_: tuple[str, str, str], to: tuple[str, str], *, only: str = "", **more: Any) -> Object:
    """Return a ReferenceGrant from (group, kind, namespace) to (group, kind); `only` is the name of the one target."""
    origin = dict(zip(("group", "kind", "namespace"), from_, strict=True))
    target = dict(zip(("group", "kind"), to, strict=True)) | ({"name": only} if only else {})
    return with_spec("ReferenceGrant", name, {"from": [origin], "to": [target]}, more)


# --- headgate


def canary(root: str, weights: Mapping[str, Any], *, name: str = "", analysis: Any = None, **more: Any) -> Object:
    """Return a Canary of the Service `root`; without `analysis` it only holds its weights."""
    backends = [{"service": service, "weight": weight} for service, weight in weights.items()]
    rules = {} if analysis is None else {"analysis": dict(analysis)}
    return with_spec("Canary", name or root, {"service": root, "backends": backends, **rules}, more)


def tls_config(name: str, labels: Mapping[str, str], *subjects: str, **more: Any) -> Object:
    """Return a TLSConfig of the pods with `labels`."""
    return with_spec(
        "TLSConfig", name, {"selector": {"matchLabels": dict(labels)}, "subjectNames": list(subjects)}, more
    )


def sidecar(name: str, labels: Mapping[str, str], **more: Any) -> Object:
    """Return a Sidecar for the pods with `labels`; `more` are what it adds, such as `containers`."""
    return with_spec("Sidecar", name, {"selector": {"matchLabels": dict(labels)}}, more)
