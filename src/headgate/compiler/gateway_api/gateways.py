"""Find the Gateways that headgate serves, with their addresses and the state of their listeners."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec import structs

from headgate.compiler.gateway_api.certificates import client_certificate, listener_certificates
from headgate.compiler.gateway_api.client_certificates import insecure_modes, without_listener
from headgate.compiler.gateway_api.parameters import class_parameters, gateway_parameters
from headgate.compiler.reasons import Reason
from headgate.compiler.references import service_key
from headgate.compiler.report import Finding
from headgate.compiler.services import address_owners
from headgate.compiler.snapshot import Snapshot, account_name
from headgate.compiler.trace_sources import namespace_sampling
from headgate.errors import Cause
from headgate.model.edge_tls import ClientCertificates, ListenerCertificate
from headgate.model.gateway_pods import GatewayPod
from headgate.model.identities import is_gateway
from headgate.resources.core.namespace import Namespace
from headgate.resources.gateway_api.gateway import (
    CONTROLLER,
    GROUP,
    IP_ADDRESS,
    OWN_CLASS,
    Gateway,
    Infrastructure,
    Listener,
)
from headgate.resources.gateway_api.gateway_class import GatewayClass
from headgate.resources.gateway_api.proxies import PROXY_OF, PROXY_OF_SERVICE, proxy_name
from headgate.resources.meta import SYSTEM_NAMESPACE, Key, Value
from headgate.resources.registry import ROUTES
from headgate.settings import Settings

_FIELD = "status.addresses"
_NOT_USABLE = {  # possible causes and the remedy, by `Settings.gateway_pods`
    False: (
        "in use, outside headgate's loopback range, or a second address",
        "Request one free address, or remove spec.addresses to get one",
    ),
    True: (
        "in use, outside the cluster's range of Services, not the load balancer's, a second one, or a change to clusterIP",
        "Request one free address in a new Gateway, or remove spec.addresses",
    ),
}
ANY_HOST = "*"
KINDS: Mapping[str, tuple[str, ...]] = {
    protocol: tuple(kind.kind for kind in ROUTES if protocol in kind.listeners)
    for protocol in dict.fromkeys(protocol for kind in ROUTES for protocol in kind.listeners)
}
"""The kinds of routes by the protocol of the listeners to which they can be attached."""
_WITH_SERVER_NAME = frozenset({"HTTPS", "TLS"})
"""The protocols whose connections have a server name (SNI), so that listeners can share a port."""


class GatewayState(Value, frozen=True, kw_only=True):
    """The state of a Gateway apart from its listeners; `address` is empty if it has none.

    A Gateway with `refusals` is not accepted. If all of them are about parameters, its existing proxies still serve it;
    otherwise it is not served. `missing_addresses` has a finding for each requested address that it does not have.
    Backends with a BackendTLSPolicy get the certificate `client`; a `client_fault` says why it can't be used.
    `ignored_fields` has findings about fields without effect, and about mistakes in fields that headgate does not read, and
    `insecure_modes` about client certificates that are not required.
    """

    address: str
    refusals: tuple[Finding, ...] = ()
    missing_addresses: tuple[Finding, ...] = ()
    client: ListenerCertificate | None = None
    client_fault: Finding | None = None
    ignored_fields: tuple[Finding, ...] = ()
    insecure_modes: tuple[Finding, ...] = ()
    is_default: bool = False

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings about the Gateway itself."""
        return (*self.refusals, *self.missing_addresses, *self.ignored_fields, *self.insecure_modes)

    @property
    def is_served(self) -> bool:
        """Whether the Gateway accepts connections, provided that it has an address."""
        return all(refusal.reason is Reason.INVALID_PARAMETERS for refusal in self.refusals)


def own_gateways(snapshot: Snapshot) -> Mapping[Key, Gateway]:
    """Return the Gateways of headgate's classes, sorted."""
    return {key: gateway for key, gateway in snapshot.of(Gateway) if _is_own(snapshot, gateway.spec.gateway_class_name)}


def _is_own(snapshot: Snapshot, name: str) -> bool:
    gateway_class = snapshot.objects.get(Key(GROUP, "GatewayClass", "", name))
    return (
        gateway_class.spec.controller_name == CONTROLLER
        if isinstance(gateway_class, GatewayClass)
        else name == OWN_CLASS
    )


def gateway_pods(snapshot: Snapshot) -> tuple[GatewayPod, ...]:
    """Return the pods that run the proxy of a Gateway or a Service on a cluster, sorted by name.

    Only the control plane creates pods in `headgate-system` with the gateway's ServiceAccount.
    """
    pods = (
        GatewayPod(
            name=pod.metadata.name,
            gateway=gateway,
            service=service,
            uid=pod.metadata.uid,
            sampling=namespace_sampling(snapshot, (gateway or service).partition("/")[0]),
        )
        for pod in snapshot.pods.values()
        if is_gateway(pod.metadata.namespace, account_name(pod))
        for gateway, service in [tuple(pod.metadata.annotations.get(key, "") for key in (PROXY_OF, PROXY_OF_SERVICE))]
        if gateway or service
    )
    return tuple(sorted(pods, key=lambda pod: pod.name))


def class_findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding for each mistake in the parameters of headgate's GatewayClasses."""
    for key, gateway_class in snapshot.of(GatewayClass):
        if gateway_class.spec.controller_name == CONTROLLER:
            causes = class_parameters(snapshot, gateway_class).causes
            yield from (Finding(key, Reason.INVALID_PARAMETERS, cause.field, cause.message) for cause in causes)


def ignored_fields(key: Key, mistakes: Iterable[Cause]) -> tuple[Finding, ...]:
    """Return findings for the mistakes of an object in the fields `Kind.unread`."""
    return tuple(
        Finding(
            key,
            Reason.FIELD_IGNORED,
            cause.field,
            f"{cause.message}; the field has no effect, and the rest of the object is in effect",
        )
        for cause in mistakes
    )


def gateway_states(
    snapshot: Snapshot, gateways: Mapping[Key, Gateway], settings: Settings
) -> Mapping[Key, GatewayState]:
    """Return the state of each Gateway.

    If several objects claim one address, a Service wins, then the oldest Gateway. On a cluster, a Gateway has the
    address of its own Service.
    """
    if not gateways:
        return {}
    proxies = {Key("", "Service", SYSTEM_NAMESPACE, proxy_name(key.namespace, key.name)): key for key in gateways}
    services = {address: service_key(name) for address, name in address_owners(snapshot.services).items()}
    owners = {address: proxies.get(service, service) for address, service in services.items()}
    by_age = sorted(gateways, key=lambda key: (gateways[key].metadata.creation_timestamp, key))
    states: dict[Key, GatewayState] = {}
    for key in by_age:
        address = gateways[key].address
        owner = owners.setdefault(address, key) if address else None
        refused = tuple(refusals(snapshot, key, gateways[key]))
        client = client_certificate(snapshot, key, gateways[key])
        states[key] = GatewayState(
            address=address if owner == key else "",
            refusals=refused,
            missing_addresses=() if refused else tuple(_missing_addresses(key, gateways[key], owner, settings)),
            client=client if isinstance(client, ListenerCertificate) else None,
            client_fault=client if isinstance(client, Finding) else None,
            ignored_fields=(
                *ignored_fields(key, snapshot.mistakes.get(key, ())),
                *_without_effect(key, gateways[key], settings),
            ),
            insecure_modes=tuple(insecure_modes(key, gateways[key])),
            is_default=gateways[key].is_default,
        )
    return {key: states[key] for key in gateways}


def refusals(snapshot: Snapshot, key: Key, gateway: Gateway) -> Iterator[Finding]:
    """Yield findings that say why a Gateway is not accepted, apart from its listeners."""
    _, causes = gateway_parameters(snapshot, gateway)
    yield from (Finding(key, Reason.INVALID_PARAMETERS, cause.field, cause.message) for cause in causes)
    for index, address in enumerate(gateway.spec.addresses):
        if address.type != IP_ADDRESS:
            message = f"headgate does not support addresses of type {address.type}; use the type {IP_ADDRESS}, or remove the address"
            field = f"spec.addresses[{index}].type"
            yield Finding(key, Reason.UNSUPPORTED_ADDRESS, field, message)


def _without_effect(key: Key, gateway: Gateway, settings: Settings) -> Iterator[Finding]:
    """Yield findings about settings without effect: `infrastructure` without pods, client certificates at no listener."""
    if gateway.spec.infrastructure != Infrastructure() and not settings.gateway_pods:
        message = "has an effect on a cluster only; the Gateways of one machine share one proxy"
        yield Finding(key, Reason.FIELD_IGNORED, "spec.infrastructure", message)
    yield from without_listener(key, gateway)


def _missing_addresses(key: Key, gateway: Gateway, owner: Key | None, settings: Settings) -> Iterator[Finding]:
    """Yield a finding for each requested address that a Gateway does not have; `owner` owns the assigned address."""
    unusable = tuple(_not_usable(key, gateway, settings))
    if owner is None:
        message = "the Gateway has no address yet, so clients can't reach it; a running headgate assigns one"
        yield from unusable or (Finding(key, Reason.ADDRESS_NOT_ASSIGNED, _FIELD, message),)
    elif owner == key:
        yield from unusable
    else:
        message = f"{owner} already has the address {gateway.address}; give the Gateway another address"
        yield Finding(key, Reason.CONFLICTED, _FIELD, message, related=(owner,))


def _not_usable(key: Key, gateway: Gateway, settings: Settings) -> Iterator[Finding]:
    """Yield a finding for each address in the spec that the Gateway does not have."""
    given = gateway.address
    causes, fix = _NOT_USABLE[settings.gateway_pods]
    for index, address in enumerate(gateway.spec.addresses):
        if address.type == IP_ADDRESS and address.value and address.value != given:
            message = (
                f"the Gateway can't have the address {address.value}: it is {causes}; its address is {given}. {fix}"
                if given
                else f"the Gateway has no address yet; it gets {address.value}, unless this address is {causes}"
            )
            field = f"spec.addresses[{index}].value"
            yield Finding(key, Reason.ADDRESS_NOT_USABLE, field, message)


def namespace_labels(snapshot: Snapshot, namespace: str) -> Mapping[str, str]:
    """Return the labels of a namespace, with the name label that every namespace has."""
    stored = snapshot.objects.get(Key("", "Namespace", "", namespace))
    own = stored.metadata.labels if isinstance(stored, Namespace) else {}
    return {"kubernetes.io/metadata.name": namespace} | own


class ListenerPlan(Value, frozen=True, kw_only=True):
    """A listener of a Gateway or ListenerSet: `host` is its hostname, and `kinds` has the kinds of routes that may attach to it.

    A listener with `faults` is not served. A listener that has only `warnings` is served.
    """

    listener: Listener
    host: str
    kinds: tuple[str, ...]
    certificates: tuple[ListenerCertificate, ...] = ()
    client_certificates: ClientCertificates | None = None
    faults: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()

    @property
    def served(self) -> bool:
        """Whether clients can connect to the listener."""
        return not self.faults


def plan_listeners(snapshot: Snapshot, key: Key, gateway: Gateway, settings: Settings) -> tuple[ListenerPlan, ...]:
    """Return a plan for each listener of a Gateway, in order."""
    listeners = gateway.spec.listeners
    plans = (
        plan_listener(snapshot, key, listener, f"spec.listeners[{index}]", settings)
        for index, listener in enumerate(listeners)
    )
    return tuple(
        structs.replace(plan, faults=(*conflicts, *plan.faults)) if conflicts else plan
        for index, plan in enumerate(plans)
        for conflicts in [tuple(_conflicts(key, listeners, index))]
    )


def plan_listener(snapshot: Snapshot, key: Key, listener: Listener, field: str, settings: Settings) -> ListenerPlan:
    """Plan a listener of the Gateway or ListenerSet `key` without regard to other listeners; `field` is its path."""
    faults = tuple(_unserved(key, listener, field, settings))
    read = (
        [*listener_certificates(snapshot, key, listener, f"{field}.tls.certificateRefs")]
        if listener.terminates_tls
        else []
    )
    usable = tuple(certificate for certificate in read if isinstance(certificate, ListenerCertificate))
    refused = tuple(finding for finding in read if isinstance(finding, Finding))
    possible, named = KINDS.get(listener.protocol, ()), listener.allowed_routes.kinds
    wrong = [kind for kind in named if kind.group != GROUP or kind.kind not in possible]
    supported = f"{listener.protocol} listeners support {' and '.join(possible)}"
    messages = (f"{supported}, but not {kind.kind} of group {kind.group}; remove it from kinds" for kind in wrong)
    field = f"{field}.allowedRoutes.kinds"
    return ListenerPlan(
        listener=listener,
        host=_host(listener),
        kinds=tuple(kind.kind for kind in named if kind not in wrong) if named else possible,
        certificates=usable,
        faults=(*faults, *(() if usable else refused)),
        warnings=(
            *(refused if usable else ()),
            *(Finding(key, Reason.INVALID_ROUTE_KINDS, field, message) for message in messages),
        ),
    )


def _host(listener: Listener) -> str:
    return listener.hostname.lower() or ANY_HOST


def share_port(protocols: AbstractSet[str]) -> bool:
    """Return whether listeners with these protocols can share a port. Unknown protocols occupy no port."""
    served = protocols & KINDS.keys()
    return len(served) < 2 or served <= _WITH_SERVER_NAME


def _conflicts(key: Key, listeners: Sequence[Listener], index: int) -> Iterator[Finding]:
    """Yield a finding if a listener of a Gateway can't share its port with the Gateway's other listeners.

    If listeners have different protocols on one port, none of them is served, because the intended protocol is unknown. TCP and UDP
    have ports of their own.
    Listeners for HTTPS and TLS can share a port with different hostnames, since the server name distinguishes them.
    Duplicate listeners of one protocol need no check here, because they make the object invalid.
    """
    listener, field = listeners[index], f"spec.listeners[{index}]"
    same_port = [other for other in listeners if other.socket == listener.socket and other.protocol in KINDS]
    protocols = {other.protocol for other in same_port}
    rivals = [
        other.name for other in same_port if other.protocol != listener.protocol and _host(other) == _host(listener)
    ]
    if listener.protocol in _WITH_SERVER_NAME and protocols <= _WITH_SERVER_NAME and rivals:
        message = (
            f"listener {rivals[0]} has the same port and hostname, with another protocol; give listener {listener.name} "
            "another hostname or port"
        )
        yield Finding(key, Reason.LISTENER_HOSTNAME_CONFLICT, f"{field}.hostname", message)
    if listener.protocol in KINDS and not share_port(protocols):
        message = (
            f"port {listener.port} has listeners for {' and '.join(sorted(protocols))}, which can't share a port; give "
            f"listener {listener.name} a port of its own"
        )
        yield Finding(key, Reason.LISTENER_PROTOCOL_CONFLICT, f"{field}.protocol", message)


def _unserved(key: Key, listener: Listener, field: str, settings: Settings) -> Iterator[Finding]:
    """Yield findings that say why a listener is not served, whatever other listeners exist."""
    if listener.protocol not in KINDS:
        message = f"headgate does not support the protocol of listener {listener.name}; use {', '.join(sorted(KINDS)[:-1])} or UDP"
        yield Finding(key, Reason.UNSUPPORTED_PROTOCOL, f"{field}.protocol", message)
    if listener.port < settings.lowest_port:
        message = (
            f"headgate has no permission to listen on port {listener.port}; give listener {listener.name} a port of 1024 or above, "
            "or run headgate as root"
        )
        yield Finding(key, Reason.PORT_NOT_BINDABLE, f"{field}.port", message)
