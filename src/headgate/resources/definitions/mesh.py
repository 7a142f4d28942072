"""The schemas of the kinds of the mesh, in all their versions: SMI's, and headgate's TLSConfig."""

from headgate.resources.definitions.schema_builders import (
    CONDITIONS,
    REF,
    Schema,
    choice,
    kind,
    listing,
    port,
    record,
    text,
    whole,
    words,
)
from headgate.resources.smi import METHODS, RULE_KINDS

_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"


def _quantity(description: str) -> Schema:
    return {"$ref": REF + _QUANTITY, "description": description}


def _status(what: str, **parts: Schema) -> Schema:
    return record(
        f"What became of the {what}. Only the control plane writes it.",
        observedGeneration=whole("The metadata.generation that the status is about."),
        conditions=CONDITIONS,
        **parts,
    )


def _proxies(what: str) -> Schema:
    return record(
        f"How far {what} has come.",
        programmed=whole("How many proxies confirmed it."),
        total=whole("How many proxies must hold it."),
    )


_SPLIT_STATUS = _status(
    "split",
    ports=listing(
        "The effect on each port of the root Service.",
        record(
            "One port of the root Service.",
            "port",
            port=whole("The port's number."),
            backends=listing(
                "Who shares the port's traffic, and who was left out.",
                record(
                    "One backend at this port.",
                    "service",
                    service=text("The Service."),
                    weight=whole("The weight in force; 0 for a backend that is left out."),
                    percent=text("The share of requests in percent, for example 33.3%."),
                    endpoints=whole("How many endpoints are ready to serve."),
                    reason=text("Why the backend is left out; absent for one that takes part."),
                ),
                key="service",
            ),
        ),
        key="port",
    ),
    proxies=_proxies("the split"),
)
_MATCHES = listing(
    "Only requests that match one of these groups are split; the others go to the root Service itself.",
    record(
        "Names a group of matches.",
        "kind name",
        apiGroup=text("The API group of the kind; specs.smi-spec.io when absent."),
        kind=choice("The kind: HTTPRouteGroup.", "HTTPRouteGroup"),
        name=text("The name, in the split's own namespace."),
    ),
    key="kind name",
)
_SUBJECT = {
    "kind": choice("The kind: ServiceAccount.", "ServiceAccount"),
    "name": text("The ServiceAccount's name.", "subdomain"),
    "namespace": text("Its namespace; the target's own when absent.", "label"),
}
_DESTINATION = record(
    "Who is called: the pods of a ServiceAccount, in the target's own namespace.",
    "kind name",
    **_SUBJECT,
    port=port("The one port of the pods that may be called; all when absent."),
)
_SOURCES = listing(
    "The callers that are allowed; none when empty.", record("A ServiceAccount.", "kind name", **_SUBJECT)
)
_RULES = listing(
    "What may be called; nothing when empty. One of the rules is enough.",
    record(
        "Traffic that is allowed: requests of an HTTPRouteGroup, or connections of a TCPRoute.",
        "kind name",
        kind=choice("The kind.", " ".join(RULE_KINDS)),
        name=text("The name, in the target's own namespace.", "subdomain"),
        matches=listing(
            "The matches of an HTTPRouteGroup that are allowed; all when absent.", text("A match's name."), minItems=1
        ),
    ),
)
_PODS = record(
    "The pods that it is about.",
    total=whole("How many there are."),
    sidecars=whole("How many of them have a sidecar; nothing is enforced for the others."),
)


def _enforced(what: str) -> Schema:
    return _status(what, pods=_PODS, proxies=_proxies("it"))


def traffic_split(version: str) -> Schema:
    """Return the schema of a TrafficSplit; the early versions have quantities as weights, and no `matches`."""
    quantities = version in ("v1alpha1", "v1beta1")
    weight = "The relative share of the root's traffic; 0 for none. Shares need not add up to 100."
    spec = {
        "service": text("The root: the Service that clients call, as a short name or a full domain name."),
        "backends": listing(
            "The Services that share the root's traffic.",
            record(
                "One Service and its share.",
                "service weight",
                service=text("The Service; name.namespace when it is in another namespace that grants this."),
                weight=_quantity(f"{weight} A quantity: 1 is 1000m.") if quantities else whole(weight, minimum=0),
            ),
            key="service",
        ),
    }
    if version in ("v1alpha3", "v1alpha4"):
        spec["matches"] = _MATCHES
    return kind(
        "Shares the traffic of a root Service between backend Services by weight.",
        spec=record("What is wanted.", "service backends", **spec),
        status=_SPLIT_STATUS,
    )


def route_group() -> Schema:
    """Return one schema for all four shapes of D4: `matches` under `spec` or at top level, headers as a map or a list."""
    regex = "RE2 expressions by header name, as a map or a list of maps; each must fit the whole value."
    match = record(
        "Requests: everything that is given must fit.",
        "name",
        name=text("The match's name, another for each match."),
        methods=listing("The methods; all when absent, or with *.", choice("A method.", " ".join(METHODS))),
        pathRegex=text("An RE2 expression for the path, anchored at its start."),
        headers={"description": regex, "x-kubernetes-preserve-unknown-fields": True},
    )
    matches = listing("A request belongs to the group when it fits one of these.", match, key="name", minItems=1)
    return kind(
        "Names requests, for splits and access rules.",
        "",
        spec=record("What is wanted.", matches=matches),
        matches=matches,
        status=record("What became of the group. Only the control plane writes it.", conditions=CONDITIONS),
    )


def traffic_target(version: str) -> Schema:
    """Return the schema of a TrafficTarget: v1alpha1 has no `spec`, and calls the rules `specs`."""
    what = "Allows some ServiceAccounts to call the pods of another one."
    if version == "v1alpha1":
        fields = {"destination": _DESTINATION, "sources": _SOURCES, "specs": _RULES}
        return kind(what, "destination sources specs", **fields, status=_enforced("target"))
    spec = record(
        "What is allowed.",
        "destination sources rules",
        destination=_DESTINATION,
        sources=_SOURCES,
        rules=_RULES,
    )
    return kind(what, spec=spec, status=_enforced("target"))


def port_route(protocol: str, version: str) -> Schema:
    """Return the schema of a TCPRoute or UDPRoute: before v1alpha4 they have no fields and mean every connection."""
    what = f"Names {protocol} connections by their port, for access rules."
    ports = listing("The ports of a Service or of its pods; all when empty.", port("A port."))
    matches = record("Connections; all when absent.", "ports", name=text("A name for them."), ports=ports)
    fields = {"matches": matches} if version == "v1alpha4" else {}
    return kind(what, "spec" if fields else "", spec=record("Which connections.", **fields))


def tls_config(*, bare: bool) -> Schema:
    """Return the schema of a TLSConfig. `bare` is the form of 004: its name may stand beside `kind` (R72)."""
    spec = record(
        "What is wanted.",
        "selector",
        selector=record(
            "The pods, in the object's own namespace.",
            "matchLabels",
            matchLabels=words("Labels that a pod must have, all of them; {} is every pod of the namespace."),
        ),
        subjectNames=listing(
            "Names that the pods' certificates carry besides their identity.",
            text("A DNS name; its first label may be *.", "wildcard"),
            key="*",
        ),
    )
    fields = (
        {"name": text("The object's name; the place of later forms is metadata.name.", "subdomain")} if bare else {}
    )
    return kind(
        "Lets the pods that it selects talk through mutual TLS only.",
        spec=spec,
        status=_enforced("configuration"),
        **fields,
    )
