"""The schemas of what says who may call whom, and how: TrafficTarget, TCPRoute and UDPRoute of SMI, TLSConfig."""

from headgate.resources.definitions.parts import (
    CONDITIONS,
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
from headgate.resources.smi import RULE_KINDS

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
_SOURCES = listing("Who may call; nobody when empty.", record("A ServiceAccount.", "kind name", **_SUBJECT))
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


def _status(what: str) -> Schema:
    return record(
        f"What became of the {what}. Only the control plane writes it.",
        observedGeneration=whole("The metadata.generation that the status is about."),
        conditions=CONDITIONS,
        pods=_PODS,
        proxies=record(
            "How far it has come.",
            programmed=whole("How many proxies confirmed it."),
            total=whole("How many proxies must hold it."),
        ),
    )


def traffic_target(version: str) -> Schema:
    """Return the schema of a TrafficTarget: v1alpha1 has no `spec`, and calls the rules `specs`."""
    what = "Allows some ServiceAccounts to call the pods of another one."
    if version == "v1alpha1":
        fields = {"destination": _DESTINATION, "sources": _SOURCES, "specs": _RULES}
        return kind(what, "destination sources specs", **fields, status=_status("target"))
    spec = record(
        "What is allowed.",
        "destination sources rules",
        destination=_DESTINATION,
        sources=_SOURCES,
        rules=_RULES,
    )
    return kind(what, spec=spec, status=_status("target"))


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
        status=_status("configuration"),
        **fields,
    )
