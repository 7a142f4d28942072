"""Reads and writes of Gateways that the controllers of one machine and of a cluster share."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from headgate.errors import DecodeError, NotFound
from headgate.objects.ports import Store
from headgate.resources.decode import read
from headgate.resources.gateway import CONTROLLER, GROUP, Gateway, GatewayClass
from headgate.resources.meta import Key, Object
from headgate.resources.registry import api_version

CLASS_NAME = "headgate"
MANAGER = "headgate-addresses"
KINDS = ((GROUP, "GatewayClass"), (GROUP, "Gateway"))
T = TypeVar("T", Gateway, GatewayClass)


class OwnGateway(NamedTuple):
    """A Gateway of one of headgate's classes, as it is stored and decoded."""

    stored: Object
    gateway: Gateway


async def ensure_class(store: Store, description: str) -> None:
    """Create the GatewayClass `headgate` unless it exists. Raises StoreError."""
    try:
        await store.get(Key(GROUP, "GatewayClass", "", CLASS_NAME))
    except NotFound:
        await store.create(
            {
                "apiVersion": api_version(GROUP, "v1"),
                "kind": "GatewayClass",
                "metadata": {"name": CLASS_NAME},
                "spec": {"controllerName": CONTROLLER, "description": description},
            }
        )


async def own_gateways(store: Store) -> Sequence[OwnGateway]:
    """Return the valid Gateways of headgate's classes. Raises StoreError."""
    classes = await _controllers(store)
    listed = [(obj, _decoded(obj, Gateway)) for obj in (await store.list(GROUP, "Gateway")).items]
    return [OwnGateway(obj, item) for obj, item in listed if item and _is_own(item.spec.gateway_class_name, classes)]


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


async def _controllers(store: Store) -> Mapping[str, str]:
    """Return the controllerName of each GatewayClass by class name; an empty text for an invalid class."""
    found: dict[str, str] = {}
    for obj in (await store.list(GROUP, "GatewayClass")).items:
        decoded = _decoded(obj, GatewayClass)
        found[obj["metadata"]["name"]] = decoded.spec.controller_name if decoded else ""
    return found


def _is_own(name: str, controllers: Mapping[str, str]) -> bool:
    """Return whether headgate controls the GatewayClass `name`. This includes the class `headgate` after its deletion."""
    return controllers.get(name, CONTROLLER if name == CLASS_NAME else "") == CONTROLLER


def _decoded(obj: Object, shape: type[T]) -> T | None:
    """Decode an object; return None if it is invalid, which the compiler reports."""
    try:
        return read(obj, shape)
    except DecodeError:
        return None
