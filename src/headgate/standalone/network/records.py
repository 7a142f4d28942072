"""The DNS records of Services, as in the specification of Kubernetes' DNS (version 1.1.0), computed from objects.

Names are in lower case and without the last dot.
"""

import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from headgate.compiler.snapshot import SERVICE_NAME_LABEL
from headgate.resources.meta import Object, part

LONGEST_LABEL = 63  # RFC 1035, section 2.3.4


class ServiceTarget(NamedTuple):
    """The data of a SRV record: a port, and a name that has addresses."""

    port: int
    name: str


class Records(NamedTuple):
    """The records of a domain. `names` also has the names between a record and the domain, which have no records."""

    domain: str
    addresses: Mapping[str, tuple[str, ...]]
    services: Mapping[str, tuple[ServiceTarget, ...]]
    aliases: Mapping[str, str]
    names: frozenset[str]

    def covers(self, name: str) -> bool:
        """Return whether a name is in the domain."""
        return name == self.domain or name.endswith(f".{self.domain}")


def records_of(services: Iterable[Object], slices: Iterable[Object], domain: str) -> Records:
    """Return the records of Services and their EndpointSlices, without those that DNS can't have, and without IPv6 addresses."""
    addresses: dict[str, dict[str, None]] = defaultdict(dict)
    targets: dict[str, dict[ServiceTarget, None]] = defaultdict(dict)
    aliases: dict[str, str] = {}
    by_service: dict[tuple[str, str], list[Object]] = defaultdict(list)
    for obj in slices:
        metadata = obj["metadata"]
        by_service[metadata["namespace"], part(metadata, "labels").get(SERVICE_NAME_LABEL, "")].append(obj)
    for service in services:
        metadata, spec = service["metadata"], part(service, "spec")
        name = f"{metadata['name']}.{metadata['namespace']}.svc.{domain}"
        if spec.get("type") == "ExternalName":
            target = str(spec.get("externalName") or "").lower().rstrip(".")
            if _is_name(target):
                aliases[name] = target
        elif spec.get("clusterIP") == "None":
            for host, address, ports in _endpoints(by_service[metadata["namespace"], metadata["name"]]):
                addresses[name][address] = None
                addresses[f"{host}.{name}"][address] = None
                _add_ports(targets, name, ports, f"{host}.{name}")
        elif _is_ipv4(address := str(spec.get("clusterIP") or "")):
            addresses[name][address] = None
            _add_ports(targets, name, spec.get("ports") or (), name)
    present = {*addresses, *targets, *aliases}
    return Records(
        domain,
        {name: tuple(values) for name, values in addresses.items()},
        {name: tuple(values) for name, values in targets.items()},
        aliases,
        frozenset(ancestor for name in present for ancestor in _ancestors(name, domain)),
    )


def _add_ports(
    targets: Mapping[str, dict[ServiceTarget, None]], name: str, ports: Iterable[Mapping[str, Any]], target: str
) -> None:
    for port in ports:
        if port.get("name") and port.get("port"):  # a port of an EndpointSlice without a number means all ports
            protocol = str(port.get("protocol") or "TCP").lower()
            targets[f"_{port['name']}._{protocol}.{name}"][ServiceTarget(int(port["port"]), target)] = None


def _endpoints(slices: Iterable[Object]) -> Iterator[tuple[str, str, list[Mapping[str, Any]]]]:
    """Yield the host name, the address and the ports of each ready endpoint."""
    for obj in slices:
        for endpoint in obj.get("endpoints") or ():
            if part(endpoint, "conditions").get("ready", True) is False:
                continue
            for address in endpoint.get("addresses") or ():
                host = endpoint.get("hostname") or address.replace(".", "-")
                if _is_ipv4(address) and _is_name(host):
                    yield host, address, obj.get("ports") or []


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _is_name(text: str) -> bool:
    return all(0 < len(label) <= LONGEST_LABEL for label in text.split("."))


def _ancestors(name: str, domain: str) -> Iterator[str]:
    while name != domain and name:
        yield name
        name = name.partition(".")[2]
    yield domain
