"""The version of each kind that a cluster's API server serves, by API discovery.

Clusters differ: SMI's and the Gateway API's CustomResourceDefinitions may be missing, or serve old versions only, and
Kubernetes 1.20 serves EndpointSlices as v1beta1.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from headgate.errors import HeadgateError, NotFound
from headgate.kubernetes.client import Client
from headgate.latest import Latest
from headgate.resources.registry import KINDS, Kind, ServedKind, api_version

REFRESH_S = 10.0
"""Seconds between two discovery requests while a kind is missing."""

Served = Mapping[tuple[str, str], ServedKind]

log = logging.getLogger(__name__)


class ServedVersions:
    """The kinds that the API server serves, by group and kind, each in the newest version that headgate knows.

    `current` is empty before the first discovery.
    """

    def __init__(self, client: Client, kinds: Iterable[Kind] = KINDS) -> None:
        self.current: Latest[Served] = Latest({})
        self._client = client
        self._kinds = tuple(kinds)

    @property
    def missing(self) -> tuple[Kind, ...]:
        """The kinds that the API server does not serve in any version that headgate knows."""
        served = self.current.get()
        return tuple(kind for kind in self._kinds if (kind.group, kind.kind) not in served)

    async def run(self) -> None:
        """Look for missing kinds until canceled."""
        while True:
            await asyncio.sleep(REFRESH_S)
            if self.missing:
                try:
                    await self.refresh()
                except HeadgateError as error:
                    log.warning("the served kinds can't be read, next attempt in %g s: %s", REFRESH_S, error)

    async def refresh(self) -> None:
        """Read which kinds are served. Raises HeadgateError."""
        offered = await self._group_versions()
        plurals: dict[str, frozenset[str]] = {}
        found: dict[tuple[str, str], ServedKind] = {}
        for kind in self._kinds:
            for version in kind.versions:
                name = api_version(kind.group, version)
                if name not in offered:
                    continue
                if name not in plurals:
                    plurals[name] = await self._plurals(name)
                if kind.plural in plurals[name]:
                    found[kind.group, kind.kind] = ServedKind(kind=kind, group=kind.group, version=version)
                    break
        self.current.set(found)

    async def _group_versions(self) -> frozenset[str]:
        groups = (await self._client.get("/apis")).get("groups") or ()
        return frozenset({"v1", *(str(item["groupVersion"]) for group in groups for item in group["versions"])})

    async def _plurals(self, version: str) -> frozenset[str]:
        """Return the resource names of a group and version; none while its server is not available."""
        try:
            found: Mapping[str, Any] = await self._client.get(
                f"/apis/{version}" if "/" in version else f"/api/{version}"
            )
        except NotFound:
            return frozenset()
        return frozenset(str(item["name"]) for item in found.get("resources") or ())
