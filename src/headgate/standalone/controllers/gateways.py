"""The controller of Gateway addresses: creates the GatewayClass `headgate`, assigns a loopback address to each Gateway.

It writes the address to `status.addresses`, where the compiler reads it.
"""

import contextlib
from collections.abc import Mapping
from typing import Any, TypeVar

from headgate.errors import DecodeError, NotFound
from headgate.objects.ports import Store, follow_all
from headgate.resources.decode import read
from headgate.resources.gateway import CONTROLLER, GROUP, IP_ADDRESS, Gateway, GatewayClass
from headgate.resources.meta import Key, Object
from headgate.resources.registry import api_version, key_of
from headgate.standalone.address_pool import AddressPool, NoAddress

CLASS_NAME = "headgate"
MANAGER = "headgate-addresses"
T = TypeVar("T", Gateway, GatewayClass)
_KINDS = ((GROUP, "GatewayClass"), (GROUP, "Gateway"))


async def ensure_class(store: Store) -> None:
    """Create the GatewayClass `headgate` unless it exists."""
    try:
        await store.get(Key(GROUP, "GatewayClass", "", CLASS_NAME))
    except NotFound:
        description = "Envoy on this machine, programmed by headgate."
        await store.create(
            {
                "apiVersion": api_version(GROUP, "v1"),
                "kind": "GatewayClass",
                "metadata": {"name": CLASS_NAME},
                "spec": {"controllerName": CONTROLLER, "description": description},
            }
        )


class GatewayAddresses:
    """Assigns a loopback address to each Gateway of headgate's classes, and releases it after the Gateway is deleted."""

    def __init__(self, store: Store, addresses: AddressPool) -> None:
        self._store = store
        self._addresses = addresses
        self._users: set[str] = set()

    async def run(self) -> None:
        """Reconcile the Gateways after each change of a Gateway or GatewayClass, until canceled."""
        async for _ in follow_all(self._store, _KINDS):
            await self.reconcile()

    async def reconcile(self) -> None:
        """Assign an address to each Gateway, write the addresses that changed, and release those of deleted Gateways."""
        classes = await self._classes()
        present: set[str] = set()
        for obj in (await self._store.list(GROUP, "Gateway")).items:
            gateway = _typed(obj, Gateway)
            if gateway is not None and _is_ours(gateway.spec.gateway_class_name, classes):
                user = str(key_of(obj))
                present.add(user)
                await self._write_address(obj, self._address(user, gateway))
        for user in self._users - present:
            self._addresses.release(user)
        self._users = present

    async def _classes(self) -> Mapping[str, str]:
        """Return the controllerName of each GatewayClass by class name; an empty text for an invalid class."""
        found: dict[str, str] = {}
        for obj in (await self._store.list(GROUP, "GatewayClass")).items:
            typed = _typed(obj, GatewayClass)
            found[obj["metadata"]["name"]] = typed.spec.controller_name if typed else ""
        return found

    def _address(self, user: str, gateway: Gateway) -> str:
        """Reserve and return the requested address of a Gateway; without a request, its present address or a free one.

        The result is empty if no such address is available.
        """
        requested = [item.value for item in gateway.spec.addresses if item.value and item.type == IP_ADDRESS]
        usable = [item for item in requested or [gateway.address] if self._addresses.covers(item, "services")]
        free = [item for item in usable if self._addresses.owner(item) in ("", user)]
        try:
            if free:
                self._addresses.release(user)
                return self._addresses.reserve(user, free[0])
            return "" if requested else self._addresses.allocate(user, "services")
        except NoAddress:
            return ""

    async def _write_address(self, obj: Object, address: str) -> None:
        """Write `status.addresses` if it differs; the control plane writes the other fields of the status."""
        status: Mapping[str, Any] = obj.get("status") or {}
        given = [{"type": IP_ADDRESS, "value": address}] if address else []
        if status.get("addresses", []) == given:
            return
        own = {name: obj["metadata"][name] for name in ("namespace", "name")}
        config = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": own, "status": {"addresses": given}}
        with contextlib.suppress(NotFound):
            await self._store.apply(config, manager=MANAGER, subresource="status")


def _is_ours(name: str, classes: Mapping[str, str]) -> bool:
    """Return whether headgate controls the GatewayClass `name`. This includes the class `headgate` after its deletion."""
    return classes.get(name, CONTROLLER if name == CLASS_NAME else "") == CONTROLLER


def _typed(obj: Object, shape: type[T]) -> T | None:
    """Decode an object; return None if it is invalid, which the compiler reports."""
    try:
        return read(obj, shape)
    except DecodeError:
        return None
