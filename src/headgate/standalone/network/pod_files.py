"""The files by which the programs of a pod resolve names, as in a pod of a cluster."""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from headgate.resources.core.pod_spec import PodSpec
from headgate.standalone.network.records import LONGEST_LABEL

RESOLVER, HOSTS, SWITCH = "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"
_SEARCH = re.compile(r"^\s*(?:search|domain)\s+(.*)$", re.MULTILINE)
_OPTIONS = re.compile(r"^\s*options\s+(.*)$", re.MULTILINE)
_NAMESERVER = re.compile(r"^\s*nameserver\s+(\S+)", re.MULTILINE)
_HOSTS_SOURCES = re.compile(r"^hosts:.*$", re.MULTILINE)


class PodName(NamedTuple):
    """The names and the address of a pod, and its `spec`, whose `subdomain` is empty or the name of a headless Service."""

    namespace: str
    hostname: str
    address: str
    spec: PodSpec = PodSpec()


def machine_files(paths: Iterable[str] = (RESOLVER, SWITCH)) -> dict[str, str]:
    """Return the content of the machine's files, by path, without those that do not exist. Raises OSError."""
    return {path: Path(path).read_text(errors="replace") for path in paths if Path(path).exists()}


def host_name(name: str) -> str:
    """Return the host name of a pod, cut to the longest label of DNS, as the kubelet does."""
    return name[:LONGEST_LABEL].rstrip("-.")


def pod_files(pod: PodName, *, resolver: str, domain: str, machine: Mapping[str, str]) -> dict[str, str]:
    """Return the content of a pod's files by path; `machine` has those of the machine that exist.

    `resolver` is the address that resolves names in `domain`.
    """
    full = f"{pod.hostname}.{subdomain}.{pod.namespace}.svc.{domain} " if (subdomain := pod.spec.subdomain) else ""
    aliases = ["\t".join((alias.ip, *alias.hostnames)) for alias in pod.spec.host_aliases]
    hosts = (
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        f"{pod.address}\t{full}{pod.hostname}",
        *aliases,
    )
    files = {
        RESOLVER: _resolver_file(pod, resolver=resolver, domain=domain, machine=machine.get(RESOLVER, "")),
        HOSTS: "".join(f"{line}\n" for line in hosts),
    }
    if switch := machine.get(SWITCH):
        # Other sources, such as systemd-resolved, answer for the machine.
        files[SWITCH] = _HOSTS_SOURCES.sub("hosts: files dns", switch)
    return files


def _resolver_file(pod: PodName, *, resolver: str, domain: str, machine: str) -> str:
    """Return the resolv.conf of a pod, as the kubelet makes it of `dnsPolicy`, `dnsConfig` and the file of the machine.

    The policy Default keeps the machine's resolvers that pods can reach; where there is none, `resolver` queries them.
    """
    policy, config = pod.spec.dns_policy, pod.spec.dns_config
    searched = (_SEARCH.findall(machine) or [""])[-1].split()
    servers: list[str] = []
    searches: list[str] = []
    options: dict[str, str] = {}
    if policy == "Default":
        servers, searches = [*filter(_is_reachable, _NAMESERVER.findall(machine))] or [resolver], searched
        words = " ".join(_OPTIONS.findall(machine)).split()
        options = {name: value for name, _, value in (word.partition(":") for word in words)}
    elif policy != "None":
        cluster = f"svc.{domain}"
        servers, searches = [resolver], [f"{pod.namespace}.{cluster}", cluster, domain, *searched]
        options = {"ndots": "5"}
    searches = list(dict.fromkeys((*searches, *config.searches)))
    options |= {option.name: option.value or "" for option in config.options}
    lines = [
        *([f"search {' '.join(searches)}"] if searches else ()),
        *(f"nameserver {server}" for server in dict.fromkeys((*servers, *config.nameservers))),
    ]
    if options:
        lines.append(f"options {' '.join(f'{name}:{value}' if value else name for name, value in options.items())}")
    return "".join(f"{line}\n" for line in lines)


def _is_reachable(server: str) -> bool:
    """Return whether pods reach a resolver of the machine: over IPv4, and not on the machine's loopback."""
    try:
        return not ipaddress.IPv4Address(server).is_loopback
    except ValueError:
        return False
