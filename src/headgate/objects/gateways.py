"""Functions to read and write Gateways, for the controllers of one machine and of a cluster."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headgate.compiler.gateway_api import gateways
from headgate.compiler.gateway_api.parameters import Parameters, gateway_parameters
from headgate.compiler.snapshot import Snapshot
from headgate.errors import NotFound
from headgate.objects.ports import Store
from headgate.resources.decode import check_stored
from headgate.resources.gateway_api.gateway import CONTROLLER, GROUP, OWN_CLASS, Gateway
from headgate.resources.kind import api_version
from headgate.resources.meta import Key, Object
from headgate.resources.registry import key_of

MANAGER = "headgate-addresses"
KINDS = ((GROUP, "GatewayClass"), (GROUP, "Gateway"), ("", "ConfigMap"))


class OwnGateway(NamedTuple):
    """A Gateway of one of headgate's classes, as it is stored and as it is decoded.

    `parameters` is None if the Gateway is not accepted.
    """

    stored: Object
    gateway: Gateway
    parameters: Parameters | None


async def ensure_class(store: Store, description: str) -> None:
    """Create the GatewayClass `headgate` unless it exists. Raises StoreError."""
    try:
        await store.get(Key(GROUP, "GatewayClass", "", OWN_CLASS))
    except NotFound:
        await store.create(
            {
                "apiVersion": api_version(GROUP, "v1"),
                "kind": "GatewayClass",
                "metadata": {"name": OWN_CLASS},
                "spec": {"controllerName": CONTROLLER, "description": description},
            }
        )


async def own_gateways(store: Store) -> Sequence[OwnGateway]:
    """Return the valid Gateways of headgate's classes. Raises StoreError."""
    stored = {key_of(obj): obj for kind in KINDS for obj in (await store.list(*kind)).items}
    decoded = {key: check_stored(obj).value for key, obj in stored.items()}
    snapshot = Snapshot(0, {key: resource for key, resource in decoded.items() if resource})
    return [
        OwnGateway(stored[key], gateway, _accepted(snapshot, key, gateway))
        for key, gateway in gateways.own_gateways(snapshot).items()
    ]


def _accepted(snapshot: Snapshot, key: Key, gateway: Gateway) -> Parameters | None:
    return None if any(gateways.refusals(snapshot, key, gateway)) else gateway_parameters(snapshot, gateway)[0]


async def write_addresses(store: Store, obj: Object, addresses: Sequence[Mapping[str, str]]) -> None:
    """Write `status.addresses` of a Gateway if it differs; the control plane writes the other fields of the status."""
    status: Mapping[str, Any] = obj.get("status") or {}
    if (status.get("addresses") or []) == list(addresses):
        return
    own = {name: obj["metadata"][name] for name in ("namespace", "name")}
    config = {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "metadata": own,
        "status": {"addresses": list(addresses)},
    }
    with contextlib.suppress(NotFound):
        await store.apply(config, manager=MANAGER, subresource="status")
