"""Gateways that are headgate's: their addresses, and which of their listeners can be served."""

import re
from collections.abc import Iterator, Mapping, Sequence

from headgate.compiler.reasons import Reason
from headgate.compiler.references import grant_hint, permitted, service_key
from headgate.compiler.report import Finding
from headgate.compiler.services import address_owners
from headgate.compiler.snapshot import Snapshot
from headgate.model.identities import PrivateText
from headgate.model.routing import Certificate
from headgate.resources.core import Secret
from headgate.resources.gateway import (
    CONTROLLER,
    GROUP,
    IP_ADDRESS,
    Gateway,
    GatewayClass,
    Listener,
    ParametersReference,
    SecretReference,
)
from headgate.resources.meta import Key, Value
from headgate.settings import Settings

OWN_CLASS = "headgate"  # headgate's also where nobody wrote the class down, as in files
_FIELD = "status.addresses"
ANY_HOST = "*"
HTTP_KINDS = ("HTTPRoute", "GRPCRoute")
KINDS: Mapping[str, tuple[str, ...]] = {"HTTP": HTTP_KINDS, "HTTPS": HTTP_KINDS, "TCP": ("TCPRoute",)}
_PEM = re.compile(rb"-----BEGIN (?P<label>[A-Z0-9 ]+)-----\s+[A-Za-z0-9+/=\s]+-----END (?P=label)-----")


class GatewayState(Value, frozen=True, kw_only=True):
    """What a Gateway has apart from its listeners: its address, empty without one.

    With `refusals` it is not accepted and not served; `missing_addresses` are addresses that it asks for and does not have. `ignored_fields`
    are mistakes in fields that headgate does not read.
    """

    address: str
    refusals: tuple[Finding, ...] = ()
    missing_addresses: tuple[Finding, ...] = ()
    ignored_fields: tuple[Finding, ...] = ()


def own_gateways(snapshot: Snapshot) -> Mapping[Key, Gateway]:
    """Return the Gateways whose class is headgate's, sorted."""
    return {key: item for key, item in snapshot.of(Gateway) if _is_own(snapshot, item.spec.gateway_class_name)}


def _is_own(snapshot: Snapshot, name: str) -> bool:
    found = snapshot.objects.get(Key(GROUP, "GatewayClass", "", name))
    return found.spec.controller_name == CONTROLLER if isinstance(found, GatewayClass) else name == OWN_CLASS


def class_findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield the GatewayClasses of headgate's that ask for parameters."""
    for key, item in snapshot.of(GatewayClass):
        if item.spec.controller_name == CONTROLLER and item.spec.parameters_ref:
            yield _parameters(key, item.spec.parameters_ref, "spec")


def ignored_fields(snapshot: Snapshot, key: Key) -> tuple[Finding, ...]:
    """Return the mistakes of an object in fields that headgate does not read; they stop nothing."""
    return tuple(
        Finding(key, Reason.FIELD_IGNORED, cause.field, f"{cause.message}; headgate does not read it, all else holds")
        for cause in snapshot.mistakes.get(key, ())
    )


def gateway_states(snapshot: Snapshot, gateways: Mapping[Key, Gateway]) -> Mapping[Key, GatewayState]:
    """Return the address of each Gateway, and what is wrong with it.

    Of those that claim one address, Services have it, then the oldest Gateway.
    """
    if not gateways:
        return {}
    owners = {address: service_key(name) for address, name in address_owners(snapshot.services).items()}
    by_age = sorted(gateways, key=lambda key: (gateways[key].metadata.creation_timestamp, key))
    found: dict[Key, GatewayState] = {}
    for key in by_age:
        address = gateways[key].address
        owner = owners.setdefault(address, key) if address else None
        found[key] = GatewayState(
            address=address if owner == key else "",
            refusals=tuple(_refusals(key, gateways[key])),
            missing_addresses=tuple(_missing_addresses(key, gateways[key], owner)),
            ignored_fields=ignored_fields(snapshot, key),
        )
    return {key: found[key] for key in gateways}


def _refusals(key: Key, gateway: Gateway) -> Iterator[Finding]:
    """Yield what keeps a Gateway from being accepted, whatever its listeners are."""
    if ref := gateway.spec.infrastructure.parameters_ref:
        yield _parameters(key, ref, "spec.infrastructure")
    for index, address in enumerate(gateway.spec.addresses):
        if address.type != IP_ADDRESS:
            message = (
                f"headgate serves Gateways at addresses of the type {IP_ADDRESS} only, not {address.type}; remove it"
            )
            field = f"spec.addresses[{index}].type"
            yield Finding(key, Reason.UNSUPPORTED_ADDRESS, field, message)


def _parameters(key: Key, ref: ParametersReference, field: str) -> Finding:
    message = f"headgate has no parameters, and does not know {ref.kind}.{ref.group} {ref.name}; remove parametersRef"
    return Finding(key, Reason.INVALID_PARAMETERS, f"{field}.parametersRef", message)


def _missing_addresses(key: Key, gateway: Gateway, owner: Key | None) -> Iterator[Finding]:
    """Yield the addresses that a Gateway does not have; `owner` has the one that it was given."""
    unusable = tuple(_not_usable(key, gateway))
    if owner is None:
        message = "the Gateway has no address yet, so clients can't reach it; it gets one where headgate runs"
        yield from unusable or (Finding(key, Reason.ADDRESS_NOT_ASSIGNED, _FIELD, message),)
    elif owner == key:
        yield from unusable
    else:
        message = f"{owner} has the address {gateway.address} already; the Gateway needs another one"
        yield Finding(key, Reason.CONFLICTED, _FIELD, message, related=(owner,))


def _not_usable(key: Key, gateway: Gateway) -> Iterator[Finding]:
    """Yield the addresses that a Gateway asks for by value and does not have."""
    given = gateway.address
    for index, address in enumerate(gateway.spec.addresses):
        if address.type == IP_ADDRESS and address.value and address.value != given:
            served = f"; the Gateway is served at {given}" if given else ""
            message = (
                f"the Gateway can't have {address.value}: it is in use, not one of headgate's loopback addresses, or a "
                f"second one{served}. Ask for one free address, or remove addresses to get one"
            )
            field = f"spec.addresses[{index}].value"
            yield Finding(key, Reason.ADDRESS_NOT_USABLE, field, message)


class ListenerPlan(Value, frozen=True, kw_only=True):
    """A listener: `host` is what it serves, `kinds` the kinds of routes that it takes.

    `faults` keep it from being served, `warnings` do not.
    """

    listener: Listener
    host: str
    kinds: tuple[str, ...]
    certificate: Certificate | None = None
    faults: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()

    @property
    def served(self) -> bool:
        """Whether clients can connect to it."""
        return not self.faults


def plan_listeners(snapshot: Snapshot, key: Key, gateway: Gateway, settings: Settings) -> tuple[ListenerPlan, ...]:
    """Judge the listeners of a Gateway, in their order."""
    listeners = gateway.spec.listeners
    return tuple(
        _plan(snapshot, key, item, f"spec.listeners[{index}]", [*_unserved(key, listeners, index, settings)])
        for index, item in enumerate(listeners)
    )


def _plan(snapshot: Snapshot, key: Key, item: Listener, field: str, faults: Sequence[Finding]) -> ListenerPlan:
    certificate = (
        _certificate(snapshot, key, item, f"{field}.tls.certificateRefs") if item.protocol == "HTTPS" else None
    )
    possible, named = KINDS.get(item.protocol, ()), item.allowed_routes.kinds
    wrong = [kind for kind in named if kind.group != GROUP or kind.kind not in possible]
    taken = f"{item.protocol} listeners take {' or '.join(possible)}"
    messages = (f"{taken}, no {kind.kind} of group {kind.group}" for kind in wrong)
    field = f"{field}.allowedRoutes.kinds"
    return ListenerPlan(
        listener=item,
        host=item.hostname.lower() or ANY_HOST,
        kinds=tuple(kind.kind for kind in named if kind not in wrong) if named else possible,
        certificate=certificate if isinstance(certificate, Certificate) else None,
        faults=(*faults, certificate) if isinstance(certificate, Finding) else tuple(faults),
        warnings=tuple(Finding(key, Reason.INVALID_ROUTE_KINDS, field, message) for message in messages),
    )


def _unserved(key: Key, listeners: Sequence[Listener], index: int, settings: Settings) -> Iterator[Finding]:
    """Yield what keeps a listener from being served.

    Of listeners with different protocols on one port none is, as nothing says which is meant. Listeners that differ in nothing
    are a mistake of the object itself.
    """
    item, field = listeners[index], f"spec.listeners[{index}]"
    protocols = {other.protocol for other in listeners if other.port == item.port and other.protocol in KINDS}
    if item.protocol in KINDS and len(protocols) > 1:
        message = (
            f"port {item.port} has listeners for {' and '.join(sorted(protocols))}, which can't share a port; give "
            f"{item.name} a port of its own"
        )
        yield Finding(key, Reason.LISTENER_PROTOCOL_CONFLICT, f"{field}.protocol", message)
    if item.protocol not in KINDS or (item.tls and item.tls.mode == "Passthrough"):
        message = f"{item.name} can't be served; headgate serves HTTP, HTTPS (where TLS ends here) and TCP listeners"
        yield Finding(key, Reason.UNSUPPORTED_PROTOCOL, f"{field}.protocol", message)
    if item.port < settings.lowest_port:
        message = (
            f"this user may not listen on port {item.port}; give the listener {item.name} a port from 1024 on, or run "
            "headgate as root"
        )
        yield Finding(key, Reason.PORT_NOT_BINDABLE, f"{field}.port", message)


def _certificate(snapshot: Snapshot, key: Key, item: Listener, field: str) -> Certificate | Finding:
    """Return the first certificate of an HTTPS listener; a proxy shows one for each hostname."""
    refs = item.tls.certificate_refs if item.tls else ()
    if not refs:
        message = f"the HTTPS listener {item.name} names no certificate; name a Secret of type kubernetes.io/tls"
        return Finding(key, Reason.INVALID_CERTIFICATE_REF, field, message)
    return _from_secret(snapshot, key, refs[0], f"{field}[0]")


def _from_secret(snapshot: Snapshot, key: Key, ref: SecretReference, field: str) -> Certificate | Finding:
    name = f"{ref.namespace or key.namespace}/{ref.name}"
    if (ref.group, ref.kind) == ("", "Secret") and not permitted(snapshot, key, name, kind="Secret"):
        message = f"Secret {name} is in another namespace and may not be used from here: "
        hint = grant_hint(key, name, kind="Secret")
        return Finding(key, Reason.REF_NOT_PERMITTED, f"{field}.namespace", message + hint)
    secret = snapshot.objects.get(Key("", "Secret", *name.split("/")))
    if (ref.group, ref.kind) != ("", "Secret"):
        message = f"{ref.kind} {ref.name} is no Secret; write kind: Secret"
    elif not isinstance(secret, Secret):
        message = f"Secret {name} not found; create it or correct the name"
    elif certificate := _in_pem(name, secret):
        return certificate
    else:
        message = f"Secret {name} has no certificate and key in PEM; make it with kubectl create secret tls"
    return Finding(key, Reason.INVALID_CERTIFICATE_REF, f"{field}.name", message)


def _in_pem(name: str, secret: Secret) -> Certificate | None:
    """Return what a Secret has to show. Only certificates are taken from `tls.crt`: some put the key there too."""
    chain, key = secret.certificate
    certificates = _blocks(chain, "CERTIFICATE")
    keys = _blocks(key, "PRIVATE KEY")
    if secret.type != "kubernetes.io/tls" or not certificates or not keys:
        return None
    return Certificate(secret=name, chain="".join(certificates), key=PrivateText(keys[0]))


def _blocks(pem: bytes, label: str) -> list[str]:
    """Return the PEM blocks whose label ends so (`EC PRIVATE KEY` and `PRIVATE KEY` are both keys)."""
    found = (match for match in _PEM.finditer(pem) if match["label"].endswith(label.encode()))
    return [f"{match[0].decode()}\n" for match in found]
