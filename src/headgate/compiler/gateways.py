"""Gateways that are headgate's, and their addresses."""

from collections.abc import Mapping
from types import MappingProxyType

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.services import address_owners
from headgate.compiler.snapshot import Snapshot
from headgate.resources.gateway import CONTROLLER, GROUP, Gateway, GatewayClass
from headgate.resources.meta import Key
from headgate.resources.registry import SERVICE

OWN_CLASS = "headgate"  # headgate's also where nobody wrote the class down, as in files
_FIELD = "status.addresses"


def own_gateways(snapshot: Snapshot) -> Mapping[Key, Gateway]:
    """Return the Gateways whose class is headgate's, sorted."""
    found = {key: item for key, item in snapshot.objects.items() if isinstance(item, Gateway)}
    own = {key: found[key] for key in sorted(found) if _is_own(snapshot, found[key].spec.gateway_class_name)}
    return MappingProxyType(own)


def _is_own(snapshot: Snapshot, name: str) -> bool:
    found = snapshot.objects.get(Key(GROUP, "GatewayClass", "", name))
    return found.spec.controller_name == CONTROLLER if isinstance(found, GatewayClass) else name == OWN_CLASS


def gateway_addresses(snapshot: Snapshot, gateways: Mapping[Key, Gateway]) -> tuple[Mapping[Key, str], list[Finding]]:
    """Return the address of each Gateway, empty where it has none of its own, and what to say about that.

    Of those that claim one address, Services have it, then the oldest Gateway.
    """
    owners = {address: SERVICE.key(*name.split("/")) for address, name in address_owners(snapshot.services).items()}
    by_age = sorted(gateways, key=lambda key: (gateways[key].metadata.creation_timestamp, key))
    found: dict[Key, str] = {}
    findings: list[Finding] = []
    for key in by_age:
        address = gateways[key].address
        owner = owners.setdefault(address, key) if address else None
        found[key] = address if owner == key else ""
        if owner is None:
            findings.append(_without_address(key, gateways[key]))
        elif owner != key:
            message = f"{owner} has the address {address} already; the Gateway needs another one"
            findings.append(
                Finding(about=key, reason=Reason.CONFLICTED, field=_FIELD, message=message, related=(owner,))
            )
    return found, findings


def _without_address(key: Key, gateway: Gateway) -> Finding:
    asked = ", ".join(address.value for address in gateway.spec.addresses if address.value)
    field = "spec.addresses" if asked else _FIELD
    message = (
        f"the Gateway can't have {asked}: it is in use, or none of headgate's; leave addresses out to get a free one"
        if asked
        else "the Gateway has no address yet, so nobody can reach it; it is given one where headgate runs"
    )
    return Finding(about=key, reason=Reason.ADDRESS_NOT_ASSIGNED, field=field, message=message)
