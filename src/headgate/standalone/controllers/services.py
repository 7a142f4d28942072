"""Defaulting of Services as in Kubernetes, with clusterIPs from the addresses of this machine (R5)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headgate.errors import Cause, Invalid, NotFound
from headgate.objects.ports import AdmissionStep, Change, ChangeListener, Store
from headgate.resources.core.service import SERVICE_TYPES
from headgate.resources.meta import Object
from headgate.resources.registry import key_of
from headgate.standalone.address_pool import AddressPool, range_of

HEADLESS = "None"


def complete_service(new: Object, old: Object | None, *, choose: Callable[[str], str]) -> Object:
    """Return a Service with its clusterIP, IP families and defaults, as an API server sets them.

    `choose` checks a requested clusterIP and returns it; for "" it returns a free address. An absent clusterIP is copied from
    `old`. Raises Invalid for an invalid type or address, and for a changed clusterIP.
    """
    spec = dict(new.get("spec") or {})
    spec["type"] = kind = spec.get("type") or "ClusterIP"
    if kind not in SERVICE_TYPES:
        raise Invalid(Cause("spec.type", f"{kind!r} is not a type of Service; use one of {', '.join(SERVICE_TYPES)}"))
    spec["sessionAffinity"] = spec.get("sessionAffinity") or "None"
    if spec.get("ports") is not None:
        spec["ports"] = [_complete_port(port) for port in spec["ports"]]
    if kind == "ExternalName":
        return {**new, "spec": {name: value for name, value in spec.items() if name not in ("clusterIP", "clusterIPs")}}
    before = (old.get("spec") or {}).get("clusterIP", "") if old else ""
    spec["clusterIP"] = address = _cluster_ip(_wanted(spec), before, choose=choose)
    spec["clusterIPs"] = [address]
    spec["ipFamilies"] = ["IPv4"]
    spec["ipFamilyPolicy"] = "SingleStack"
    spec["internalTrafficPolicy"] = spec.get("internalTrafficPolicy") or "Cluster"
    return {**new, "spec": spec}


def service_admission(addresses: AddressPool) -> AdmissionStep:
    """Return the admission step that sets clusterIPs and defaults of Services; other kinds pass unchanged.

    The step only chooses addresses. The listener of `track_cluster_ips` reserves them after the write.
    """

    def admit(new: Object, old: Object | None, _view: object = None) -> Object:
        if new["kind"] != "Service" or key_of(new).group:
            return new
        kept = None if old is None or _is_out_of_range(old, addresses) else old
        return complete_service(
            new, kept, choose=lambda address: _choose(addresses, service_user(new), address=address)
        )

    return admit


def track_cluster_ips(addresses: AddressPool) -> Mapping[tuple[str, str], ChangeListener]:
    """Return a listener that reserves the clusterIPs of stored Services, and releases those of deleted Services."""

    def follow(change: Change) -> None:
        user, held = service_user(change.object), _address(change.object)
        if change.type == "DELETED" or not addresses.covers(held, "services"):
            addresses.release(user)
        elif addresses.owner(held) != user:
            addresses.release(user)
            addresses.reserve(user, held)

    return {("", "Service"): follow}


def service_user(service: Object) -> str:
    """Return the name under which a Service owns addresses: `Service shop/web`."""
    return str(key_of(service))


def stored_range(objects: Iterable[Object]) -> int | None:
    """Return A of the range in which stored Services and pods have addresses; None if they have none."""
    for obj in objects:
        address = _address(obj) or str((obj.get("status") or {}).get("podIP", ""))
        if (number := range_of(address)) is not None:
            return number
    return None


async def reserve_cluster_ips(store: Store, addresses: AddressPool) -> None:
    """Reserve the clusterIPs of stored Services. A Service outside the current range gets a new address.

    Call this function before any other code writes Services.
    """
    services = (await store.list("", "Service")).items
    misplaced = [service for service in services if not _held(service, addresses)]
    for service in misplaced:
        spec = {name: value for name, value in service["spec"].items() if name not in ("clusterIP", "clusterIPs")}
        try:
            await store.update({**service, "spec": spec})
        except NotFound:
            continue


def _is_out_of_range(service: Object, addresses: AddressPool) -> bool:
    """Return whether the clusterIP is outside the range that this headgate owns."""
    address = _address(service)
    return range_of(address) is not None and not addresses.covers(address, "services")


def _held(service: Object, addresses: AddressPool) -> bool:
    address = _address(service)
    if range_of(address) is None:
        return bool(address) or (service.get("spec") or {}).get("type") == "ExternalName"
    if _is_out_of_range(service, addresses):
        return False
    addresses.reserve(service_user(service), address)
    return True


def _address(service: Object) -> str:
    return str((service.get("spec") or {}).get("clusterIP") or "")


def _choose(addresses: AddressPool, user: str, *, address: str) -> str:
    if not address:
        return addresses.pick(user, "services")
    if not addresses.covers(address, "services"):
        part = f"{addresses.prefix}0.1 to {addresses.prefix}127.254"
        raise Invalid(
            Cause(
                "spec.clusterIP", f"{address} is not in {part}; omit the field to get a free address, or set it to None"
            )
        )
    holder = addresses.owner(address)
    if holder not in ("", user):
        message = f"address {address} is used by {holder}; omit the field to get a free address"
        raise Invalid(Cause("spec.clusterIP", message))
    return address


def _wanted(spec: dict[str, Any]) -> str:
    single, several = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    if several and single and several[0] != single:
        raise Invalid(Cause("spec.clusterIPs[0]", f"must equal spec.clusterIP ({single}); omit one of the two fields"))
    return single or (str(several[0]) if several else "")


def _cluster_ip(address: str, before: str, *, choose: Callable[[str], str]) -> str:
    if before and address and address != before:
        raise Invalid(
            Cause("spec.clusterIP", f"can't change from {before} to {address}; delete the Service and create it again")
        )
    return HEADLESS if HEADLESS in (address, before) else choose(address or before)


def _complete_port(port: Mapping[str, Any]) -> dict[str, Any]:
    complete = {**port, "protocol": port.get("protocol") or "TCP"}
    if complete.get("targetPort") in (None, "", 0) and "port" in complete:
        complete["targetPort"] = complete["port"]
    return complete
