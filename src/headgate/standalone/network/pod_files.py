"""The files by which the programs of a pod resolve names, as in a pod of a cluster."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from headgate.standalone.network.records import LONGEST_LABEL

RESOLVER, HOSTS, SWITCH = "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"
_SEARCH = re.compile(r"^\s*(?:search|domain)\s+(.*)$", re.MULTILINE)
_HOSTS_SOURCES = re.compile(r"^hosts:.*$", re.MULTILINE)


class PodName(NamedTuple):
    """The names and the address of a pod. `subdomain` is empty, or the name of a headless Service."""

    namespace: str
    hostname: str
    subdomain: str
    address: str


def machine_files(paths: Iterable[str] = (RESOLVER, SWITCH)) -> dict[str, str]:
    """Return the content of the machine's files, by path, without those that do not exist. Raises OSError."""
    return {path: Path(path).read_text(errors="replace") for path in paths if Path(path).exists()}


def host_name(name: str) -> str:
    """Return the host name of a pod, cut to the longest label of DNS, as the kubelet does."""
    return name[:LONGEST_LABEL].rstrip("-.")


def pod_files(pod: PodName, *, resolver: str, domain: str, machine: Mapping[str, str]) -> dict[str, str]:
    """Return the content of the files of a pod by path; `machine` has those of the machine that exist.

    `resolver` is the address of the resolver of names in `domain`.
    """
    cluster = f"svc.{domain}"
    searched = _SEARCH.findall(machine.get(RESOLVER, ""))
    search = " ".join([f"{pod.namespace}.{cluster}", cluster, domain, *searched[-1:]])
    full = f"{pod.hostname}.{pod.subdomain}.{pod.namespace}.{cluster} " if pod.subdomain else ""
    files = {
        RESOLVER: f"search {search}\nnameserver {resolver}\noptions ndots:5\n",
        HOSTS: (
            f"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n{pod.address}\t{full}{pod.hostname}\n"
        ),
    }
    if switch := machine.get(SWITCH):
        # Other sources, such as systemd-resolved, answer for the machine.
        files[SWITCH] = _HOSTS_SOURCES.sub("hosts: files dns", switch)
    return files
