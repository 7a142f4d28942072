"""The controller that assigns a loopback address to each Gateway.

It writes the address to `status.addresses`, where the compiler reads it.
"""

from headgate.objects.gateways import KINDS, own_gateways, write_addresses
from headgate.objects.ports import Store, follow_all
from headgate.resources.gateway_api.gateway import IP_ADDRESS, Gateway
from headgate.resources.registry import key_of
from headgate.standalone.address_pool import AddressPool, NoAddress

CLASS_DESCRIPTION = "Envoy on this machine, programmed by headgate."


class GatewayAddresses:
    """Assigns a loopback address to each Gateway of headgate's classes, and releases it after the Gateway is deleted."""

    def __init__(self, store: Store, addresses: AddressPool) -> None:
        self._store = store
        self._addresses = addresses
        self._users: set[str] = set()

    async def run(self) -> None:
        """Reconcile the Gateways after each change to an object that they depend on, until canceled."""
        async for _ in follow_all(self._store, KINDS):
            await self.reconcile()

    async def reconcile(self) -> None:
        """Assign an address to each Gateway, write the addresses that changed, and release those of deleted Gateways."""
        present: set[str] = set()
        for obj, gateway, _ in await own_gateways(self._store):
            user = str(key_of(obj))
            present.add(user)
            address = self._address(user, gateway)
            await write_addresses(self._store, obj, [{"type": IP_ADDRESS, "value": address}] if address else [])
        for user in self._users - present:
            self._addresses.release(user)
        self._users = present

    def _address(self, user: str, gateway: Gateway) -> str:
        """Reserve and return the requested address of a Gateway; without a request, its current address or a free one.

        The result is empty if no such address is available.
        """
        requested = [entry.value for entry in gateway.spec.addresses if entry.value and entry.type == IP_ADDRESS]
        usable = [address for address in requested or [gateway.address] if self._addresses.covers(address, "services")]
        free = [address for address in usable if self._addresses.owner(address) in ("", user)]
        try:
            if free:
                self._addresses.release(user)
                return self._addresses.reserve(user, free[0])
            return "" if requested else self._addresses.allocate(user, "services")
        except NoAddress:
            return ""
