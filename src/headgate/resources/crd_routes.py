"""The schemas of HTTPRoute, GRPCRoute and TCPRoute, with the limits of the released Gateway API (requirements 2.4)."""

from headgate.resources.schema_parts import (
    CONDITIONS,
    Schema,
    anything,
    choice,
    kind,
    listing,
    port,
    record,
    text,
    whole,
)

METHODS = "GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH"
LARGEST_WEIGHT = 1_000_000
_MATCHING = "Exact RegularExpression"
_REFERENCE = {
    "group": text("The API group of the kind; Kubernetes' core when absent.", "group"),
    "kind": text("The kind; Service when absent.", "kind", maxLength=63),
    "name": text("The name.", minLength=1, maxLength=253),
    "namespace": text("The namespace, which must grant this; the route's own when absent.", "label"),
    "port": port("The port of the Service."),
}
_PARENT = record(
    "A Gateway, or a Service for traffic inside the mesh.",
    "name",
    group=text('The API group of the kind; gateway.networking.k8s.io when absent, "" for a Service.', "group"),
    kind=text("The kind; Gateway when absent.", "kind", maxLength=63),
    name=text("The name.", minLength=1, maxLength=253),
    namespace=text("The namespace; the route's own when absent.", "label"),
    sectionName=text("The listener; all when absent.", "subdomain", maxLength=253),
    port=port("The port; all when absent."),
)
_PARENTS = listing("What the route is attached to.", _PARENT, maxItems=32)
_HOSTNAMES = listing(
    "The hosts that the route is for; all of its listener when absent.",
    text("A host; *.example.com is all hosts below.", "wildcard"),
    maxItems=16,
)
_RULE_NAME = text("The rule's name, another for each rule.", "subdomain", maxLength=253)
_SESSION = record(
    "What keeps a client at the backend that it had.",
    sessionName=text("The name of the cookie or header.", maxLength=128),
    absoluteTimeout=text("How long a session may last.", "duration"),
    idleTimeout=text("How long a session may rest.", "duration"),
    type=choice("Cookie (when absent) or Header.", "Cookie Header"),
    cookieConfig=record("The cookie.", lifetimeType=choice("How long it lives.", "Permanent Session")),
)
_HEADER = record(
    "A header and its value.",
    "name value",
    name=text("The header's name; case does not matter.", "header"),
    value=text("Its value.", minLength=1, maxLength=4096),
)
_HEADER_NAME = text("A header's name.", "header")


def _edit(what: str) -> Schema:
    return record(
        f"Changes of the {what}'s headers.",
        set=listing("Headers to replace.", _HEADER, maxItems=16),
        add=listing("Headers to append to.", _HEADER, maxItems=16),
        remove=listing("Headers to take away.", _HEADER_NAME, maxItems=16),
    )


_PATH_EDIT = record(
    "Another path.",
    "type",
    type=choice("Which of the two fields is set.", "ReplaceFullPath ReplacePrefixMatch"),
    replaceFullPath=text("The whole new path.", maxLength=1024),
    replacePrefixMatch=text("What stands instead of the prefix that the rule matches.", maxLength=1024),
)
_MIRROR = record(
    "Copies of requests; their answers are dropped.",
    "backendRef",
    backendRef=record("Who gets the copies.", "name", **_REFERENCE),
    percent=whole("How many percent of the requests are copied; all when absent.", minimum=0, maximum=100),
    fraction=record(
        "How many of the requests are copied, exactly; it counts when percent is set too.",
        numerator=whole("Copied requests; 100 when absent.", minimum=0),
        denominator=whole("Of so many requests; 100 when absent.", minimum=1),
    ),
)
_REDIRECT = record(
    "Answers with another address; what is absent stays as it is in the request.",
    scheme=choice("The scheme.", "http https"),
    hostname=text("The host.", "hostname"),
    path=_PATH_EDIT,
    port=port("The port."),
    statusCode={**whole("The status; 302 when absent."), "enum": [301, 302, 303, 307, 308]},
)
_EXTENSION = record(
    "An object of another product.",
    "group kind name",
    group=text("The API group of the kind.", "group"),
    kind=text("The kind.", "kind", maxLength=63),
    name=text("The name.", minLength=1, maxLength=253),
)
_COMMON_FILTERS = {
    "requestHeaderModifier": _edit("request"),
    "responseHeaderModifier": _edit("answer"),
    "requestMirror": _MIRROR,
    "extensionRef": _EXTENSION,
}
_HTTP_FILTERS = {
    **_COMMON_FILTERS,
    "requestRedirect": _REDIRECT,
    "urlRewrite": record(
        "Another host or path towards the backend.",
        hostname=text("The host.", "hostname"),
        path=_PATH_EDIT,
    ),
}


def _filters(fields: dict[str, Schema]) -> Schema:
    types = "RequestHeaderModifier ResponseHeaderModifier RequestMirror ExtensionRef"
    types += " RequestRedirect URLRewrite" if fields is _HTTP_FILTERS else ""
    one = record("One change.", "type", type=choice("Which field is set.", types), **fields)
    return listing("Changes of requests and answers.", one, maxItems=16)


def _backends(fields: dict[str, Schema] | None, most: int = 16) -> Schema:
    weight = whole("The relative share; 1 when absent, 0 for none.", minimum=0, maximum=LARGEST_WEIGHT)
    filters = {"filters": _filters(fields)} if fields else {}
    one = record("A backend and its share.", "name", **_REFERENCE, weight=weight, **filters)
    return listing("Who answers, by weight.", one, maxItems=most)


def _named(what: str, name: Schema) -> Schema:
    return record(
        f"A {what} and the value that it must have.",
        "name value",
        type=choice("Exact (when absent) or RegularExpression.", _MATCHING),
        name=name,
        value=text("The value, or an RE2 expression for all of it.", minLength=1, maxLength=4096),
    )


_HEADERS = listing("Headers that must all fit.", _named("header", _HEADER_NAME), maxItems=16)
_HTTP_MATCH = record(
    "Requests: everything that is given must fit.",
    path=record(
        "The path; any when absent.",
        type=choice("PathPrefix (when absent), Exact or RegularExpression.", "Exact PathPrefix RegularExpression"),
        value=text("The path, or an RE2 expression for all of it.", maxLength=1024),
    ),
    headers=_HEADERS,
    queryParams=listing(
        "Query parameters that must all fit.",
        _named("query parameter", text("The parameter's name.", minLength=1, maxLength=256)),
        maxItems=16,
    ),
    method=choice("The method.", METHODS),
)
_GRPC_MATCH = record(
    "Calls: everything that is given must fit.",
    method=record(
        "The method; any when absent.",
        type=choice("Exact (when absent) or RegularExpression.", _MATCHING),
        service=text("The service, with its package.", maxLength=1024),
        method=text("The method's name.", maxLength=1024),
    ),
    headers=_HEADERS,
)


def _status() -> Schema:
    return record(
        "What became of the route. Only control planes write it.",
        parents=listing(
            "What became of the route at each parent.",
            record(
                "One parent, as one control plane sees it.",
                "parentRef controllerName conditions",
                parentRef=_PARENT,
                controllerName=text("Who wrote the entry."),
                conditions=CONDITIONS,
            ),
            maxItems=32,
        ),
    )


def http_route() -> Schema:
    """Return the schema of an HTTPRoute."""
    rule = record(
        "Requests, and what becomes of them.",
        name=_RULE_NAME,
        matches=listing("Requests that fit one of these; all when absent.", _HTTP_MATCH, maxItems=64),
        filters=_filters(_HTTP_FILTERS),
        backendRefs=_backends(_HTTP_FILTERS),
        timeouts=record(
            "Durations such as 10s; 0s is no limit.",
            request=text("For the whole request.", "duration"),
            backendRequest=text("For one attempt at a backend.", "duration"),
        ),
        retry=anything("Further attempts; headgate does not read it."),
        sessionPersistence=_SESSION,
    )
    rules = listing("The rules.", rule, minItems=1, maxItems=16)
    spec = record("What is wanted.", parentRefs=_PARENTS, hostnames=_HOSTNAMES, rules=rules)
    return kind("Sends HTTP requests to backends.", spec=spec, status=_status())


def grpc_route() -> Schema:
    """Return the schema of a GRPCRoute."""
    rule = record(
        "Calls, and what becomes of them.",
        name=_RULE_NAME,
        matches=listing("Calls that fit one of these; all when absent.", _GRPC_MATCH, maxItems=64),
        filters=_filters(_COMMON_FILTERS),
        backendRefs=_backends(_COMMON_FILTERS),
        sessionPersistence=_SESSION,
    )
    rules = listing("The rules.", rule, maxItems=16)
    spec = record("What is wanted.", parentRefs=_PARENTS, hostnames=_HOSTNAMES, rules=rules)
    return kind("Sends gRPC calls to backends.", spec=spec, status=_status())


def tcp_route() -> Schema:
    """Return the schema of a TCPRoute of the Gateway API."""
    rule = record("Where connections go.", "backendRefs", name=_RULE_NAME, backendRefs=_backends(None))
    rules = listing("The one rule.", rule, minItems=1, maxItems=16)
    spec = record("What is wanted.", "rules", parentRefs=_PARENTS, rules=rules)
    return kind("Sends TCP connections to backends.", spec=spec, status=_status())
