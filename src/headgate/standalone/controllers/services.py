"""What Kubernetes fills in when a Service is created, on loopback addresses (R5)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headgate.errors import Cause, Invalid, NotFound
from headgate.objects.ports import AdmissionStep, Change, ChangeListener, Store
from headgate.resources.meta import Object
from headgate.resources.registry import key_of
from headgate.standalone.address_pool import AddressPool, is_loopback

_TYPES = ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")
HEADLESS = "None"


def complete_service(new: Object, old: Object | None, *, choose: Callable[[str], str]) -> Object:
    """Return a structurally sound Service with its clusterIP, families and defaults filled in, as an API server does.

    `choose` gives the clusterIP for the one that the user wrote ("" for any). An absent clusterIP is kept from `old`;
    another one than before is refused. Raises Invalid.
    """
    spec = dict(new.get("spec") or {})
    spec["type"] = kind = spec.get("type") or "ClusterIP"
    if kind not in _TYPES:
        raise Invalid(Cause("spec.type", f"{kind!r} is not a type of Service; write one of {', '.join(_TYPES)}"))
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
    """Return a hook for the store that completes Services from `addresses` and leaves other kinds alone.

    It only picks addresses: `track_cluster_ips` holds them once the write is stored.
    """

    def admit(new: Object, old: Object | None, _view: object = None) -> Object:
        if new["kind"] != "Service" or key_of(new).group:
            return new
        kept = None if old is None or _is_out_of_range(old, addresses) else old
        return complete_service(new, kept, choose=lambda wanted: _choose(addresses, service_user(new), wanted=wanted))

    return admit


def track_cluster_ips(addresses: AddressPool) -> Mapping[tuple[str, str], ChangeListener]:
    """Return a hook for the store that holds the clusterIPs of stored Services and releases those of deleted ones."""

    def follow(change: Change) -> None:
        user, held = service_user(change.object), _address(change.object)
        if change.type == "DELETED" or not addresses.covers(held, "services"):
            addresses.release(user)
        elif addresses.owner(held) != user:
            addresses.release(user)
            addresses.reserve(user, held)

    return {("", "Service"): follow}


def service_user(service: Object) -> str:
    """Name a Service as a user of an address."""
    return str(key_of(service))


def stored_range(objects: Iterable[Object]) -> int | None:
    """Return the range that stored Services and pods live in, for the next start to claim again; None without any."""
    for obj in objects:
        address = _address(obj) or str((obj.get("status") or {}).get("podIP", ""))
        if is_loopback(address):
            return int(address.split(".")[1])
    return None


async def reserve_cluster_ips(store: Store, addresses: AddressPool) -> None:
    """Note the clusterIPs that the store holds; a Service of another range moves into this one.

    Call it before anything else writes Services.
    """
    services = (await store.list("", "Service")).items
    strangers = [service for service in services if not _held(service, addresses)]
    for service in strangers:
        spec = {name: value for name, value in service["spec"].items() if name not in ("clusterIP", "clusterIPs")}
        try:
            await store.update({**service, "spec": spec})
        except NotFound:
            continue


def _is_out_of_range(service: Object, addresses: AddressPool) -> bool:
    """Whether the clusterIP belongs to a range that this headgate no longer owns."""
    address = _address(service)
    return is_loopback(address) and not addresses.covers(address, "services")


def _held(service: Object, addresses: AddressPool) -> bool:
    address = _address(service)
    if not is_loopback(address):
        return bool(address) or (service.get("spec") or {}).get("type") == "ExternalName"
    if _is_out_of_range(service, addresses):
        return False
    addresses.reserve(service_user(service), address)
    return True


def _address(service: Object) -> str:
    return str((service.get("spec") or {}).get("clusterIP") or "")


def _choose(addresses: AddressPool, user: str, *, wanted: str) -> str:
    if not wanted:
        return addresses.pick(user, "services")
    if not addresses.covers(wanted, "services"):
        part = f"127.{addresses.range}.0.1 to 127.{addresses.range}.127.254"
        raise Invalid(
            Cause(
                "spec.clusterIP", f"{wanted} is not in {part}; leave the field out to get a free address, or write None"
            )
        )
    holder = addresses.owner(wanted)
    if holder not in ("", user):
        message = f"address {wanted} is used by {holder}; leave the field out to get a free one"
        raise Invalid(Cause("spec.clusterIP", message))
    return wanted


def _wanted(spec: dict[str, Any]) -> str:
    single, several = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    if several and single and several[0] != single:
        raise Invalid(Cause("spec.clusterIPs[0]", f"must equal spec.clusterIP ({single}); leave one of the two out"))
    return single or (str(several[0]) if several else "")


def _cluster_ip(wanted: str, before: str, *, choose: Callable[[str], str]) -> str:
    if before and wanted and wanted != before:
        raise Invalid(
            Cause("spec.clusterIP", f"can't change from {before} to {wanted}; delete the Service and create it again")
        )
    return HEADLESS if HEADLESS in (wanted, before) else choose(wanted or before)


def _complete_port(port: Mapping[str, Any]) -> dict[str, Any]:
    found = {**port, "protocol": port.get("protocol") or "TCP"}
    if found.get("targetPort") in (None, "", 0) and "port" in found:
        found["targetPort"] = found["port"]
    return found
