"""The schemas of GatewayClass, Gateway and ReferenceGrant, with the limits of the released Gateway API (2.4, 2.5)."""

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
    words,
)

_SELECTOR = record(
    "Labels that a namespace must have; every part must hold.",
    matchLabels=words("Labels and their values."),
    matchExpressions=listing(
        "Conditions on labels.",
        record(
            "One condition.",
            "key operator",
            key=text("The label."),
            operator=choice("How its value is compared.", "In NotIn Exists DoesNotExist"),
            values=listing("The values to compare with.", text("A value.")),
        ),
    ),
)
_ROUTE_KIND = record(
    "A kind of route.",
    "kind",
    group=text("The API group; gateway.networking.k8s.io when absent.", "group"),
    kind=text("The kind, for example HTTPRoute.", "kind", maxLength=63),
)
_LISTENER = record(
    "One port, with what is spoken on it and who may attach to it.",
    "name port protocol",
    name=text("The name, for sectionName of routes; each in a Gateway is another.", "subdomain", maxLength=253),
    hostname=text("The host that the listener is for; *.example.com is all hosts below. Any when absent.", "wildcard"),
    port=port("The port's number."),
    protocol=text("HTTP, HTTPS, TCP or TLS.", minLength=1, maxLength=255),
    tls=record(
        "Where TLS ends; required for HTTPS and TLS.",
        mode=choice("Terminate at the Gateway (when absent), or Passthrough to the backend.", "Terminate Passthrough"),
        certificateRefs=listing(
            "The certificates to show.",
            record(
                "Names a certificate.",
                "name",
                group=text("The API group of the kind; the core when absent.", "group"),
                kind=text("The kind; Secret when absent.", "kind", maxLength=63),
                name=text("The name.", minLength=1, maxLength=253),
                namespace=text("The namespace, which must grant this; the Gateway's own when absent.", "label"),
            ),
            maxItems=64,
        ),
        options=words("Options of other products."),
        frontendValidation=anything("Certificates of clients; headgate does not read it."),
    ),
    allowedRoutes=record(
        "Which routes may attach.",
        namespaces=record(
            "Namespaces whose routes may attach.",
            **{
                "from": choice("Same (when absent), All, Selector or None.", "All Selector Same None"),
                "selector": _SELECTOR,
            },
        ),
        kinds=listing(
            "Kinds of routes that may attach; all that fit the protocol when absent.", _ROUTE_KIND, maxItems=8
        ),
    ),
)
_ADDRESS = record(
    "An address.",
    type=text("IPAddress (when absent) or Hostname.", minLength=1, maxLength=253),
    value=text("The address itself.", maxLength=253),
)
_PARAMETERS = record(
    "Names an object with settings; headgate has none, so nothing that names one is accepted.",
    "group kind name",
    group=text("The API group of the kind.", "group"),
    kind=text("The kind.", "kind", minLength=1, maxLength=63),
    name=text("The name.", minLength=1, maxLength=253),
)
_LISTENER_STATUS = record(
    "What became of one listener.",
    "name attachedRoutes conditions",
    name=text("The listener."),
    supportedKinds=listing("The kinds of routes that it takes.", _ROUTE_KIND),
    attachedRoutes={"type": "integer", "format": "int32", "description": "How many routes are attached."},
    conditions=CONDITIONS,
)


def gateway_class() -> Schema:
    """Return the schema of a GatewayClass."""
    return kind(
        "A sort of Gateways, and who makes them real.",
        spec=record(
            "What is wanted.",
            "controllerName",
            controllerName=text(
                "Who makes Gateways of this class real: headgate.dev/gateway-controller is headgate.", "controller"
            ),
            parametersRef=record(
                _PARAMETERS["description"],
                "group kind name",
                **_PARAMETERS["properties"],
                namespace=text("The namespace, for a kind that has one.", "label"),
            ),
            description=text("What the class is for.", maxLength=64),
        ),
        status=record(
            "What became of the class. Only the control plane writes it.",
            conditions=CONDITIONS,
            supportedFeatures=listing(
                "What Gateways of this class can do.",
                record("A feature.", "name", name=text("The feature's name.")),
                key="name",
            ),
        ),
    )


def gateway() -> Schema:
    """Return the schema of a Gateway."""
    return kind(
        "A place where traffic from outside the mesh comes in.",
        spec=record(
            "What is wanted.",
            "gatewayClassName listeners",
            gatewayClassName=text("The class: headgate for a Gateway of headgate's.", minLength=1, maxLength=253),
            listeners=listing("The ports.", _LISTENER, key="name", minItems=1, maxItems=64),
            addresses=listing("Addresses to ask for; one is chosen when absent.", _ADDRESS, maxItems=16),
            infrastructure=record(
                "Settings of what serves the Gateway.",
                labels=words("Labels for what is made; headgate does not read them."),
                annotations=words("Annotations for what is made; headgate does not read them."),
                parametersRef=_PARAMETERS,
            ),
            allowedListeners=anything("Where ListenerSets may be; headgate does not read it."),
            tls=anything("TLS towards backends and clients; headgate does not read it."),
        ),
        status=record(
            "What became of the Gateway. Only the control plane writes it.",
            addresses=listing("The addresses that the listeners bind.", _ADDRESS),
            conditions=CONDITIONS,
            listeners=listing("What became of each listener.", _LISTENER_STATUS, key="name"),
        ),
    )


def reference_grant() -> Schema:
    """Return the schema of a ReferenceGrant."""
    return kind(
        "Consent of this namespace to be referred to from other namespaces.",
        spec=record(
            "Any of `from` may refer to any of `to`.",
            "from to",
            **{
                "from": listing(
                    "Who may refer.",
                    record(
                        "One kind in one namespace.",
                        "group kind namespace",
                        group=text("The API group of the kind; empty for Kubernetes' core."),
                        kind=text("The kind, for example TrafficSplit."),
                        namespace=text("The namespace that the reference comes from."),
                    ),
                ),
                "to": listing(
                    "What may be referred to, in this namespace.",
                    record(
                        "One kind or one object.",
                        "group kind",
                        group=text("The API group of the kind; empty for Kubernetes' core."),
                        kind=text("The kind, for example Service."),
                        name=text("The object; all of the kind when absent."),
                    ),
                ),
            },
        ),
    )
