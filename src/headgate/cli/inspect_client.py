"""A client of the inspect API (D29)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from headgate.cli.arguments import ApiOptions
from headgate.cli.connection import find_api
from headgate.cli.open_values import with_open_values
from headgate.envoy.node_ids import SIDECAR
from headgate.errors import HeadgateError, NotFound, Unavailable
from headgate.kubernetes.client import NO_MESSAGE, Client
from headgate.resources.call_records import CallRecordList
from headgate.resources.explanations import Explanation, ExplanationStatus, explanation_spec
from headgate.resources.inspect import (
    API_VERSION,
    GROUP,
    VERSION,
    FindingList,
    PodSidecar,
    Proxy,
    ProxyConfig,
    ProxyList,
)
from headgate.resources.mesh_status import MESH, MeshStatus
from headgate.resources.meta import SYSTEM_NAMESPACE, Object
from headgate.resources.request_spec import RequestSpec
from headgate.resources.revisions import Revision, RevisionList, RevisionRestoration
from headgate.resources.workload_sidecars import WorkloadSidecars, WorkloadSidecarsList

if TYPE_CHECKING:
    from headgate.plan.planning import PlanSpec, PlanStatus

NO_GROUP = f"does not serve {GROUP}: headgate is not installed there, is an older version, or was installed with --no-aggregated-apis; run `headgate install`, or use another kubeconfig"
NOT_AVAILABLE = f"no replica of headgate serves {GROUP} now; within seconds after an installation one does, else see "
SEE_STATUS = "`headgate status` and "
SEE_API_SERVICE = f"`kubectl get apiservice {VERSION}.{GROUP} -o yaml`"

T = TypeVar("T")
Status_co = TypeVar("Status_co", covariant=True)


class Answered(Protocol[Status_co]):
    """A question to the API, with its answer as the status."""

    @property
    def status(self) -> Status_co | None:
        """The answer; None if there is none yet."""


def answer_of(question: Answered[T]) -> T:
    """Return the answer of a question. Raises HeadgateError without one."""
    if question.status is None:
        raise HeadgateError(f"the response of {GROUP} has no status")
    return question.status


class InspectClient:
    """Reads the inspect API. Every call raises Unavailable without a response, and HeadgateError for an error response."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @classmethod
    def of(cls, api: ApiOptions, *, changes: bool = False) -> "InspectClient":
        """Return the client for the mesh that a command's options select. Raises what `find_api` raises."""
        return cls(find_api(api, changes=changes))

    async def proxies(self, namespace: str = "") -> Sequence[Proxy]:
        """Return all proxies, or the sidecars of a namespace."""
        return (await self.get(resource_path("proxies", namespace), ProxyList)).items

    async def proxy(self, text: str, namespace: str = "") -> Proxy:
        """Return the proxy with a name that `parse_proxy_name` accepts. Raises NotFound, with the names of all proxies."""
        return await self._of_proxy(text, namespace, Proxy)

    async def workload_sidecars(self, namespace: str = "") -> Sequence[WorkloadSidecars]:
        """Return the workloads with sidecars in a namespace, or in all, and which of their pods are outdated."""
        return (await self.get(resource_path("workloadsidecars", namespace), WorkloadSidecarsList)).items

    async def config(self, text: str, namespace: str, query: Mapping[str, str]) -> ProxyConfig:
        """Return the Envoy resources of a proxy, selected by `query`. Raises NotFound, with the names of all proxies."""
        return await self._of_proxy(text, namespace, ProxyConfig, "/config", **query)

    async def findings(self, namespace: str = "") -> FindingList:
        """Return the findings on the objects of a namespace, or on all objects."""
        return await self.get(resource_path("findings", namespace), FindingList)

    async def calls(self, namespace: str = "") -> CallRecordList:
        """Return the recorded calls to the workloads of a namespace, or to all workloads."""
        return await self.get(resource_path("callrecords", namespace), CallRecordList)

    async def status(self) -> MeshStatus:
        """Return the status of the mesh."""
        return await self.get(f"{resource_path('meshstatuses')}/{MESH}", MeshStatus)

    async def pod_sidecar(self, namespace: str, name: str) -> PodSidecar:
        """Return why a pod has a sidecar or none. Raises NotFound when there is no such pod."""
        return await self.get(f"{resource_path('pods', namespace)}/{quote(name, safe='')}/sidecar", PodSidecar)

    async def explanation(self, request: RequestSpec, revision: int = 0) -> Explanation:
        """Return the explanation of a request, now or at a revision. Raises NotFound for a missing object or revision."""
        question = Explanation(spec=explanation_spec(request, revision))
        return await self._create(resource_path("explanations", request.namespace), question)

    async def explained(self, request: RequestSpec) -> ExplanationStatus:
        """Return where a request goes now. Raises what `explanation` raises."""
        return answer_of(await self.explanation(request))

    async def revisions(self, namespace: str, query: Mapping[str, str]) -> RevisionList:
        """Return the revisions with changes in a namespace, or in all, selected by `query`."""
        return await self.get(resource_path("revisions", namespace), RevisionList, **query)

    async def revision(self, number: int, namespace: str) -> Revision:
        """Return a revision. Raises NotFound."""
        return await self.get(f"{resource_path('revisions', namespace)}/{number}", Revision)

    async def restoration(self, number: int, namespace: str) -> RevisionRestoration:
        """Return the writes that restore the objects of a revision. Raises NotFound."""
        return await self.get(f"{resource_path('revisions', namespace)}/{number}/restoration", RevisionRestoration)

    async def plan(self, spec: "PlanSpec") -> "PlanStatus":
        """Return what a change would do. Raises Unavailable when the API has no inspect group."""
        from headgate.plan.planning import Plan  # it imports the compiler, which no other command of this client needs

        return answer_of(await self._create(resource_path("plans"), Plan(spec=spec)))

    async def _create(self, path: str, question: T) -> T:
        """Post an object and return it with its status. Raises Unavailable when the API has no inspect group."""
        try:
            return self._read(await self.client.post(path, msgspec.to_builtins(question)), type(question))
        except NotFound as error:
            raise await self._group_missing(error) from None
        except Unavailable as error:
            await self.client.get("/apis")  # raises the error when the API server itself can't be reached
            raise _with_next_step(error) from None

    async def get(self, path: str, shape: type[T], **query: str | Sequence[str]) -> T:
        """Return a decoded response.

        Raises Unavailable when the API has no inspect group, NotFound for a missing object.
        """
        try:
            return self._read(await self._get(path, **query), shape)
        except NotFound as error:
            raise await self._group_missing(error) from None

    async def _get(self, path: str, **query: str | Sequence[str]) -> Object:
        try:
            return await self.client.get(path, **query)
        except Unavailable as error:
            await self.client.get("/apis")  # raises the error when the API server itself can't be reached
            raise _with_next_step(error) from None

    async def _group_missing(self, error: NotFound) -> HeadgateError:
        """Return the error for a 404: Unavailable when the inspect group is missing, else `error`."""
        try:
            await self.client.get(f"/apis/{API_VERSION}")
        except NotFound:
            return Unavailable(f"the API server {await self.client.server()} {NO_GROUP}")
        return error

    async def _of_proxy(self, text: str, namespace: str, shape: type[T], part: str = "", **query: str) -> T:
        proxy_namespace, name = parse_proxy_name(text, namespace or self.client.namespace)
        path = f"{resource_path('proxies', proxy_namespace)}/{quote(name, safe='')}{part}"
        try:
            return self._read(await self._get(path, **query), shape)
        except NotFound:
            names = ", ".join(display_name(proxy.node) for proxy in await self.proxies())
            raise NotFound(f"proxy {text!r} not found; the proxies are: {names or 'none'}") from None

    def _read(self, answer: Object, shape: type[T]) -> T:
        try:
            return with_open_values(answer, shape)
        except msgspec.ValidationError as error:
            raise HeadgateError(
                f"the response of {GROUP} can't be decoded; the responding headgate may have another version: {error}"
            ) from error


def _with_next_step(error: Unavailable) -> Unavailable:
    """Return an error with what to do about it, if the API server answered, and not headgate with a message of its own."""
    by_headgate = not str(error).startswith(NO_MESSAGE)
    return error if by_headgate else Unavailable(f"{error}: {NOT_AVAILABLE}{SEE_STATUS}{SEE_API_SERVICE}")


def resource_path(plural: str, namespace: str = "") -> str:
    """Return the URL path of an inspect API resource: in one namespace, or without `namespace` in all."""
    prefix = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"/apis/{API_VERSION}{prefix}/{plural}"


def parse_proxy_name(text: str, namespace: str) -> tuple[str, str]:
    """Parse a proxy name into namespace and name.

    Accepts `gateway`, `POD`, `pod/POD`, `NAMESPACE/POD` or a node ID; a pod without a namespace is in `namespace`.
    Raises NotFound for any other text.
    """
    match text.split("/"):
        case ["gateway"]:
            return SYSTEM_NAMESPACE, text
        case [name] | ["pod" | "pods" | "po", name]:
            return namespace, name
        case [pod_namespace, name]:
            return pod_namespace, name
        case [kind, pod_namespace, name] if kind == SIDECAR:
            return pod_namespace, name
        case _:
            raise NotFound(f"{text!r} is not a proxy name; write gateway, the name of a pod, or NAMESPACE/POD")


def display_name(node_id: str) -> str:
    """Return the name of a proxy in tables and messages: `gateway`, or `NAMESPACE/POD`."""
    return node_id.removeprefix(f"{SIDECAR}/")
