"""Gateways that are headgate's, and their addresses."""

from collections.abc import Iterator, Mapping

from headgate.compiler.reasons import Reason
from headgate.compiler.references import service_key
from headgate.compiler.report import Finding
from headgate.compiler.services import address_owners
from headgate.compiler.snapshot import Snapshot
from headgate.resources.gateway import CONTROLLER, GROUP, IP_ADDRESS, Gateway, GatewayClass, ParametersReference
from headgate.resources.meta import Key, Value

OWN_CLASS = "headgate"  # headgate's also where nobody wrote the class down, as in files
_FIELD = "status.addresses"


class Standing(Value, frozen=True, kw_only=True):
    """What a Gateway has apart from its listeners: its address, empty without one.

    With `refusals` it is not accepted and not served; `lacking` are addresses that it asks for and does not have.
    """

    address: str
    refusals: tuple[Finding, ...] = ()
    lacking: tuple[Finding, ...] = ()


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


def standings(snapshot: Snapshot, gateways: Mapping[Key, Gateway]) -> Mapping[Key, Standing]:
    """Return the address of each Gateway, and what is wrong with it.

    Of those that claim one address, Services have it, then the oldest Gateway.
    """
    if not gateways:
        return {}
    owners = {address: service_key(name) for address, name in address_owners(snapshot.services).items()}
    by_age = sorted(gateways, key=lambda key: (gateways[key].metadata.creation_timestamp, key))
    found: dict[Key, Standing] = {}
    for key in by_age:
        address = gateways[key].address
        owner = owners.setdefault(address, key) if address else None
        found[key] = Standing(
            address=address if owner == key else "",
            refusals=tuple(_refusals(key, gateways[key])),
            lacking=tuple(_lacking(key, gateways[key], owner)),
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


def _lacking(key: Key, gateway: Gateway, owner: Key | None) -> Iterator[Finding]:
    """Yield the addresses that a Gateway does not have; `owner` has the one that it was given."""
    unusable = tuple(_not_usable(key, gateway))
    if owner is None:
        yield from unusable or (_without_address(key),)
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


def _without_address(key: Key) -> Finding:
    message = "the Gateway has no address yet, so clients can't reach it; it gets one where headgate runs"
    return Finding(key, Reason.ADDRESS_NOT_ASSIGNED, _FIELD, message)
