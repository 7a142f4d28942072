"""Discovers in which version a cluster's API server serves each kind.

Clusters differ: SMI's and the Gateway API's CustomResourceDefinitions may be missing, or serve old versions only, and
Kubernetes 1.20 serves EndpointSlices as v1beta1.
"""

import asyncio
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headgate.backoff import until_done
from headgate.errors import HeadgateError, NotFound, Unavailable
from headgate.kubernetes.client import Client
from headgate.latest import Latest
from headgate.resources.kind import Kind, ServedKind, api_version
from headgate.resources.meta import Object
from headgate.resources.registry import CLUSTER_KINDS

NATIVE_SIDECARS = (1, 29)
"""The version of Kubernetes, major and minor, that enables native sidecars by default."""
RULES_OF_DEFINITIONS = (1, 25)
"""The version of Kubernetes, major and minor, that evaluates the rules of CustomResourceDefinitions by default."""
BUILT_IN = "apps/"
"""How the versions begin of a group that every API server serves."""
REFRESH_S = 10.0
"""Seconds between two discovery requests while a kind is missing."""

Served = Mapping[tuple[str, str], ServedKind]

log = logging.getLogger(__name__)


class ServedVersions:
    """The kinds that the API server serves, by group and kind, each in the newest version that headgate knows.

    `current` is empty before the first discovery.
    """

    def __init__(self, client: Client, kinds: Iterable[Kind] = CLUSTER_KINDS) -> None:
        self.current: Latest[Served] = Latest({})
        self._client = client
        self._kinds = tuple(kinds)

    async def native_sidecars(self) -> bool:
        """Return whether init containers may be sidecars (Kubernetes 1.29 and newer). Raises HeadgateError."""
        return is_since(await self._get("/version"), NATIVE_SIDECARS)

    @property
    def missing(self) -> tuple[Kind, ...]:
        """The kinds that the API server does not serve in any version that headgate knows."""
        served = self.current.get()
        return tuple(kind for kind in self._kinds if (kind.group, kind.kind) not in served)

    async def run(self) -> None:
        """Repeat the discovery while kinds are missing, until canceled."""
        while True:
            await asyncio.sleep(REFRESH_S)
            if self.missing:
                try:
                    await self.refresh()
                except HeadgateError as error:
                    log.warning("API discovery failed, next attempt in %g s: %s", REFRESH_S, error)

    async def refresh(self) -> None:
        """Discover the served kinds and update `current`, once the API server answers. Raises HeadgateError."""
        groups = await until_done(self._groups, "API discovery: /apis can't be read", on=Unavailable)
        plurals = dict(_aggregated(groups))
        offered = _offered(groups)
        served: dict[tuple[str, str], ServedKind] = {}
        for kind in self._kinds:
            for version in kind.versions:
                name = api_version(kind.group, version)
                if name not in offered:
                    continue
                if name not in plurals:
                    plurals[name] = await self._plurals(name)
                if kind.plural in plurals[name]:
                    served[kind.group, kind.kind] = ServedKind(kind=kind, group=kind.group, version=version)
                    break
        self.current.set(served)

    async def _groups(self) -> Object:
        """Return the API groups. Raises Unavailable while the API server has just started and lists only one of them.

        With such a list, the kinds of all other groups would have no objects, and proxies would lose their configuration.
        """
        groups = await self._client.groups()
        if not any(name.startswith(BUILT_IN) for name in _offered(groups)):
            raise Unavailable("the API server has started, and does not know its API groups yet")
        return groups

    async def _plurals(self, version: str) -> frozenset[str]:
        """Return the resource names of a group and version; none while its server is not available."""
        try:
            resources = await self._get(f"/apis/{version}" if "/" in version else f"/api/{version}")
        except NotFound:
            return frozenset()
        return frozenset(str(resource["name"]) for resource in resources.get("resources") or ())

    async def _get(self, path: str) -> Mapping[str, Any]:
        return await until_done(lambda: self._client.get(path), f"API discovery: {path} can't be read", on=Unavailable)


def is_since(response: Mapping[str, Any], version: tuple[int, int]) -> bool:
    """Return whether a response of `/version` names this version of Kubernetes, major and minor, or a newer one."""
    numbers = [re.match(r"\d*", str(response.get(name, "")))[0] for name in ("major", "minor")]  # type: ignore[index]
    return all(numbers) and tuple(map(int, numbers)) >= version


def _offered(groups: Object) -> frozenset[str]:
    """Return the groups and versions that a response of `/apis` names, and the version of the core group."""
    return frozenset({"v1", *dict(_aggregated(groups)), *_group_versions(groups)})


def _aggregated(discovery: Object) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each group and version of an APIGroupDiscoveryList with the names of its resources."""
    for group in discovery.get("items") or ():
        for version in group["versions"]:
            names = frozenset(str(resource["resource"]) for resource in version.get("resources") or ())
            yield api_version(group["metadata"]["name"], version["version"]), names


def _group_versions(groups: Object) -> Iterator[str]:
    """Yield each group and version of an APIGroupList."""
    for group in groups.get("groups") or ():
        for version in group["versions"]:
            yield str(version["groupVersion"])
