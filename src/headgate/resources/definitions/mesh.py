"""The schemas of SMI's kinds, and of headgate's TLSConfig and Sidecar, in all their versions."""

from collections.abc import Iterable

from headgate.kinds import SPECS
from headgate.resources.definitions.schema_builders import (
    CONDITIONS,
    MATCH_NAME,
    SELECTOR,
    Schema,
    choice,
    kind,
    listing,
    matching,
    port,
    quantity,
    record,
    ruled,
    status,
    text,
    whole,
    words,
)
from headgate.resources.smi import METHODS, RULE_KINDS

RESERVED_CONTAINERS = ("headgate-redirect", "headgate-sidecar")
RESERVED_VOLUMES = ("headgate", "headgate-secrets")
SPLIT_RULES = (
    ("self.service != ''", "service is missing"),
    ("size(self.backends) > 0", "backends is empty: name at least one Service and its weight"),
)
"""The rules of `spec` in TrafficSplits and Canaries."""
_PROXIES = record(
    "The progress of the object's configuration on proxies.",
    programmed=whole("The number of proxies that acknowledged the configuration."),
    total=whole("The number of proxies that need the configuration."),
)


_SPLIT_STATUS = status(
    "split",
    ports=listing(
        "The effect on each port of the root Service.",
        record(
            "One port of the root Service.",
            "port",
            port=whole("The port's number."),
            backends=listing(
                "The backends of the port, including those that get no traffic.",
                record(
                    "One backend on this port.",
                    "service",
                    service=text("The Service."),
                    weight=whole("The weight in force; 0 for a backend that is left out."),
                    percent=text("The share of requests in percent, for example 33.3%."),
                    endpoints=whole("The number of ready endpoints."),
                    reason=text("The reason why the backend gets no traffic; absent if it gets traffic."),
                ),
                key="service",
            ),
        ),
        key="port",
    ),
    proxies=_PROXIES,
)
_IN_SPECS = " || ".join(
    (
        "!has(self.apiGroup)",
        "self.apiGroup == ''",
        f"self.apiGroup == '{SPECS}'",
        "self.apiGroup.startsWith('/')",
        f"self.apiGroup.startsWith('{SPECS}/')",
    )
)
_MATCHES = listing(
    "Only requests that match one of these groups are split; all other requests go to the root Service itself. All requests "
    "are split when absent; an empty list is rejected, because it would look like no request.",
    ruled(
        record(
            "A reference to an HTTPRouteGroup.",
            "kind name",
            apiGroup=text("The API group of the kind; specs.smi-spec.io when absent."),
            kind=choice("The kind: HTTPRouteGroup.", "HTTPRouteGroup"),
            name=text("The name of the HTTPRouteGroup in the split's own namespace."),
        ),
        ("self.name != ''", "name is missing"),
        (_IN_SPECS, "apiGroup must be specs.smi-spec.io"),
    ),
    key="kind name",
    minItems=1,
)
_SUBJECT = {
    "kind": choice("The kind: ServiceAccount.", "ServiceAccount"),
    "name": text("The ServiceAccount's name.", "subdomain"),
    "namespace": text("The ServiceAccount's namespace; the TrafficTarget's own when absent.", "label"),
}
_DESTINATION = record(
    "The destination: the pods of a ServiceAccount in the TrafficTarget's own namespace.",
    "kind name",
    **_SUBJECT,
    port=port("The only port of the pods that may be called; all ports when absent."),
)
_SOURCES = listing(
    "The callers that are allowed; none when empty.",
    record("A ServiceAccount whose pods may call.", "kind name", **_SUBJECT),
)
_RULES = listing(
    "The traffic that is allowed; none when empty. A request must satisfy one of the rules.",
    ruled(
        record(
            "Allowed traffic: requests of an HTTPRouteGroup, or connections of a TCPRoute.",
            "kind name",
            kind=choice("The kind.", " ".join(RULE_KINDS)),
            name=text("The name of the route in the TrafficTarget's own namespace.", "subdomain"),
            matches=listing(
                "The matches of an HTTPRouteGroup that are allowed; all when absent.",
                text("A match's name."),
                minItems=1,
            ),
        ),
        (
            "!has(self.matches) || self.kind == 'HTTPRouteGroup'",
            "matches is only possible for an HTTPRouteGroup: leave it out to allow the whole route",
        ),
    ),
)
_PODS = record(
    "The pods that the object selects.",
    total=whole("The number of pods."),
    sidecars=whole("The number of these pods with a sidecar; nothing is enforced at pods without a sidecar."),
)


def _enforced(what: str) -> Schema:
    return status(what, pods=_PODS, proxies=_PROXIES)


_WOULD_REFUSE = record(
    "In audit mode: the calls (requests or connections) that would have been refused without it, since the current rules.",
    since=text("When the counts began.", "date-time"),
    calls=whole("The number of calls."),
    callers=listing(
        "The callers with most calls.",
        record(
            "One caller, port and protocol.",
            caller=text("The ServiceAccount as namespace/name; for plaintext, the pod or the address."),
            port=whole("The port of the pods; 0 for ports of no Service."),
            protocol=choice("The protocol.", "http tcp"),
            calls=whole("The number of calls."),
            reason=text("Why: NoTargetNamesCaller, NoRuleMatches or NoIdentity."),
        ),
    ),
    omittedCallers=whole("The number of callers that the list omits."),
)


def traffic_split(version: str) -> Schema:
    """Return the schema of a TrafficSplit. Weights are quantities in early versions, which have no `matches`."""
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
                weight=quantity(f"{weight} A quantity: 1 is 1000m.") if quantities else whole(weight, minimum=0),
            ),
            key="service",
        ),
    }
    if version in ("v1alpha3", "v1alpha4"):
        spec["matches"] = _MATCHES
    return kind(
        "Shares the traffic of a root Service between backend Services by weight.",
        spec=ruled(record("The desired split.", "service backends", **spec), *SPLIT_RULES),
        status=_SPLIT_STATUS,
    )


def request_match() -> Schema:
    """Return the schema of a match of an HTTPRouteGroup; headers are a map or a list of maps (D4)."""
    regex = "RE2 expressions by header name, as a map or a list of maps; each must match the whole value."
    return ruled(
        record(
            "A match of requests. A request must satisfy all fields that are set.",
            "name",
            name=matching("The name of the match, which is unique in the group.", MATCH_NAME),
            methods=listing(
                "The methods; all when absent, or with *. An empty list is rejected, because it would look like no method.",
                choice("A method.", " ".join(METHODS)),
                minItems=1,
            ),
            pathRegex=text("An RE2 expression for the path, which matches from its start.", minLength=1),
            headers={"description": regex, "x-kubernetes-preserve-unknown-fields": True},
        ),
        ("self.name != ''", "name is missing"),
    )


def route_group() -> Schema:
    """Return one schema for all four shapes of an HTTPRouteGroup: `matches` is in `spec` or at top level (D4)."""
    matches = listing(
        "The matches of the group. A request belongs to it if it satisfies one of them.",
        request_match(),
        key="name",
        minItems=1,
    )
    group = kind(
        "A named set of requests, for splits and access rules.",
        "",
        spec=record("The matches of the group.", matches=matches),
        matches=matches,
        status=record("The status of the group. Only the control plane writes it.", conditions=CONDITIONS),
    )
    return ruled(
        group,
        (
            "!has(self.matches) || !has(self.spec) || !has(self.spec.matches)",
            "matches is also in spec; write it in only one of the two places",
        ),
        (
            "has(self.matches) || has(self.spec) && has(self.spec.matches)",
            "spec.matches is missing: add a match",
        ),
    )


def traffic_target(version: str) -> Schema:
    """Return the schema of a TrafficTarget. v1alpha1 has no `spec`, and its rules are named `specs`."""
    what = "Allows pods of some ServiceAccounts to call the pods of another ServiceAccount."
    if version == "v1alpha1":
        fields = {"destination": _DESTINATION, "sources": _SOURCES, "specs": _RULES}
        return kind(
            what,
            "destination sources specs",
            **fields,
            status=status("target", pods=_PODS, proxies=_PROXIES, wouldRefuse=_WOULD_REFUSE),
        )
    spec = record(
        "The traffic that is allowed.",
        "destination sources rules",
        destination=_DESTINATION,
        sources=_SOURCES,
        rules=_RULES,
    )
    return kind(what, spec=spec, status=status("target", pods=_PODS, proxies=_PROXIES, wouldRefuse=_WOULD_REFUSE))


def port_route(protocol: str, version: str) -> Schema:
    """Return the schema of SMI's TCPRoute or UDPRoute. Before v1alpha4 they have no fields and select every connection."""
    what = f"A named set of {protocol} connections, selected by port, for access rules."
    ports = listing("The ports of a Service or of its pods; all when empty.", port("A port."))
    matches = record(
        "The selected connections; all when absent.",
        "ports",
        name=matching("A name for the connections.", MATCH_NAME),
        ports=ports,
    )
    fields = {"matches": matches} if version == "v1alpha4" else {}
    return kind(what, "spec" if fields else "", spec=record("The selected connections.", **fields))


def tls_config(*, bare: bool) -> Schema:
    """Return the schema of a TLSConfig. `bare` is the version without a group (004), with a top-level `name` (R72)."""
    spec = record(
        "The selected pods and the names in their certificates.",
        "selector",
        selector=record(
            "The selector of pods in the object's own namespace.",
            "matchLabels",
            matchLabels=words("The labels that selected pods have; {} selects every pod of the namespace."),
        ),
        subjectNames=listing(
            "DNS names in the pods' certificates, in addition to the SPIFFE ID.",
            text("A DNS name; its first label may be *.", "wildcard"),
            key="*",
        ),
    )
    fields = {"name": text("The object's name; later versions have it in metadata.name.", "subdomain")} if bare else {}
    return kind(
        "Requires mutual TLS for connections to the selected pods.",
        spec=spec,
        status=_enforced("configuration"),
        **fields,
    )


def sidecar() -> Schema:
    """Return the schema of a Sidecar (R79, D18). The schema of Pods has the fields of containers and volumes.

    `checks.sidecars` checks them with that schema.
    """
    container, volume = "A container, as in a pod.", "A volume, as in a pod."
    additions = {
        "containers": _additions("Containers that run beside the application.", container, RESERVED_CONTAINERS),
        "initContainers": _additions(
            "Containers that end before the application starts, after those of the pod.", container, RESERVED_CONTAINERS
        ),
        "volumes": _additions("Volumes of the pod, for these containers.", volume, RESERVED_VOLUMES),
        "env": _additions("Variables for the containers of the application.", "A variable, as in a container."),
    }
    spec = ruled(
        record(
            "The selected pods, and what they get in addition.",
            "selector",
            selector={
                **SELECTOR,
                "description": "The selector of pods in the Sidecar's own namespace; {} selects all.",
            },
            **additions,
        ),
        (
            " || ".join(f"has(self.{name}) && size(self.{name}) > 0" for name in additions),
            "adds nothing: write containers, initContainers, volumes or env",
        ),
    )
    current = status(
        "Sidecar",
        pods=record(
            "The selected pods.",
            total=whole("The number of pods."),
            injected=whole("The number of pods that have the current generation."),
            restartNeeded=whole("The number of pods that get the current generation when they are replaced."),
            conflicts=whole("The number of pods with a name conflict."),
        ),
    )
    return kind("Adds containers, for example of a monitoring agent, to the selected pods.", spec=spec, status=current)


def _additions(description: str, item: str, reserved: Iterable[str] = ()) -> Schema:
    """Return the schema of a list of named items, whose names are not empty and not reserved."""
    named = ruled(
        record(item, "name", name=text("The name.")),
        ("self.name != ''", "name is empty"),
        *((f"self.name != '{name}'", f"{name} is a name of headgate's own; choose another name") for name in reserved),
    )
    return listing(description, {**named, "x-kubernetes-preserve-unknown-fields": True}, key="name")
