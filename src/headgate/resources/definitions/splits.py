"""The schemas of TrafficSplit and HTTPRouteGroup, in all their versions."""

from headgate.resources.definitions.parts import CONDITIONS, REF, Schema, choice, kind, listing, record, text, whole
from headgate.resources.smi import METHODS

_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"


def _quantity(description: str) -> Schema:
    return {"$ref": REF + _QUANTITY, "description": description}


_SPLIT_STATUS = record(
    "What became of the split. Only the control plane writes it.",
    observedGeneration=whole("The metadata.generation that the status is about."),
    conditions=CONDITIONS,
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
    proxies=record(
        "How far the split has come.",
        programmed=whole("How many proxies confirmed it."),
        total=whole("How many proxies must hold it."),
    ),
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
