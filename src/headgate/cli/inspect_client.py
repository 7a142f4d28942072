"""The inspect API as a client: what the commands ask a running mesh (D29)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import msgspec

from headgate.cli.connection import find_api
from headgate.compiler.explain import Explanation
from headgate.compiler.requests import Asked
from headgate.envoy.view import SIDECAR
from headgate.errors import HeadgateError, NotFound
from headgate.kubernetes.client import Client
from headgate.model.identities import SYSTEM_NAMESPACE
from headgate.resources.inspect import API_VERSION, GROUP, MESH, FindingList, MeshStatus, Proxy, ProxyConfig
from headgate.resources.meta import Input, Object

NO_GROUP = f"this API has no {GROUP}: no headgate runs behind it, or an older one"

T = TypeVar("T")


class _Proxies(Input, frozen=True, kw_only=True):
    items: tuple[Proxy, ...]


class InspectClient:
    """Questions to a running mesh. Raises Unavailable when it can't be reached, HeadgateError when it refuses."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @classmethod
    def of(cls, kubeconfig: Path | None, state: Path | None) -> "InspectClient":
        """Return the inspection of the mesh that a command's options name. Raises as `find_api`."""
        return cls(find_api(kubeconfig, state))

    async def proxies(self, namespace: str = "") -> Sequence[Proxy]:
        """Return all proxies, or the sidecars of a namespace."""
        return (await self.get(resource_path("proxies", namespace), _Proxies)).items

    async def proxy(self, text: str, namespace: str = "") -> Proxy:
        """Return one proxy, as users name it. Raises NotFound that names those that exist."""
        return await self._of_proxy(text, namespace, Proxy)

    async def config(self, text: str, namespace: str, query: Mapping[str, str]) -> ProxyConfig:
        """Return the resources of a proxy. Raises NotFound that names the proxies that exist."""
        return await self._of_proxy(text, namespace, ProxyConfig, "/config", **query)

    async def findings(self) -> FindingList:
        """Return what there is to say about the objects."""
        return await self.get(resource_path("findings"), FindingList)

    async def status(self) -> MeshStatus:
        """Return how the mesh is."""
        return await self.get(f"{resource_path('meshstatuses')}/{MESH}", MeshStatus)

    async def explanation(self, asked: Asked) -> Explanation:
        """Return what would become of a request. Raises NotFound when it names an object that does not exist."""
        query = {"url": asked.url, "method": asked.method, "from": asked.caller, "via": asked.via}
        headers = [f"{name}: {value}" for name, value in asked.headers]
        return await self.get(resource_path("explanations", asked.namespace), Explanation, **query, header=headers)

    async def get(self, path: str, shape: type[T], **query: str | Sequence[str]) -> T:
        """Return an answer. Raises HeadgateError when there is no such API, NotFound when it does not know an object."""
        try:
            return self._read(await self.client.get(path, **query), shape)
        except NotFound as error:
            raise await self._group_missing(error) from None

    async def _group_missing(self, error: NotFound) -> HeadgateError:
        """Return what a 404 is about: the group itself, or an object."""
        try:
            await self.client.get(f"/apis/{API_VERSION}")
        except NotFound:
            return HeadgateError(NO_GROUP)
        return error

    async def _of_proxy(self, text: str, namespace: str, shape: type[T], part: str = "", **query: str) -> T:
        inside, name = parse_proxy_name(text, namespace or "default")
        path = f"{resource_path('proxies', inside)}/{quote(name, safe='')}{part}"
        try:
            return self._read(await self.client.get(path, **query), shape)
        except NotFound:
            known = ", ".join(display_name(item.node) for item in await self.proxies())
            raise NotFound(f"there is no proxy {text!r}; the proxies are: {known or 'none'}") from None

    def _read(self, answer: Object, shape: type[T]) -> T:
        try:
            return msgspec.convert(answer, shape)
        except msgspec.ValidationError as error:
            raise HeadgateError(
                f"the answer of {GROUP} can't be read, perhaps it is of another version: {error}"
            ) from error


def resource_path(plural: str, namespace: str = "") -> str:
    """Return the path of a kind of the inspect API."""
    inside = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"/apis/{API_VERSION}{inside}/{plural}"


def parse_proxy_name(text: str, namespace: str) -> tuple[str, str]:
    """Return the namespace and name of a proxy: `gateway`, `POD`, `pod/POD`, `NAMESPACE/POD` or a node id."""
    match text.split("/"):
        case ["gateway"]:
            return SYSTEM_NAMESPACE, text
        case [name] | ["pod" | "pods" | "po", name]:
            return namespace, name
        case [inside, name]:
            return inside, name
        case [kind, inside, name] if kind == SIDECAR:
            return inside, name
        case _:
            raise NotFound(f"{text!r} names no proxy; write gateway, a pod's name, or NAMESPACE/POD")


def display_name(node_id: str) -> str:
    """Return a proxy's name for people: `gateway`, or `NAMESPACE/POD`."""
    return node_id.removeprefix(f"{SIDECAR}/")
