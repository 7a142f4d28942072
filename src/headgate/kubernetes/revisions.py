"""Revisions of headgate beside the default one: which are installed, calls to them, and the namespaces that name a missing one."""

import asyncio
import hashlib
import ssl
import time
from collections.abc import Callable, Iterator, Mapping

import aiohttp
import msgspec

from headgate.admission.injection import InjectionDecision, PodNamespace, Sidecars
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot
from headgate.errors import ProxyError, Unavailable
from headgate.http_failures import describe
from headgate.kubernetes.client import ApiServer
from headgate.kubernetes.connection import CredentialSource
from headgate.kubernetes.names import NAME, NAMESPACE, revision_server
from headgate.kubernetes.token_reviews import PATH
from headgate.kubernetes.transport import RequestConnector, aborting
from headgate.latest import Latest, wait_for_change
from headgate.model.identities import Credential
from headgate.objects.ports import Reader, Relist, follow
from headgate.resources.core.namespace import Namespace
from headgate.resources.core.pod_metadata import REVISION
from headgate.resources.meta import Input, Key, Object, labels_of, part
from headgate.resources.registry import key_of

ANSWER_S = 60.0
"""The longest wait for a response of a revision: it compiles the whole mesh."""
VERIFIED_S = 60.0  # for which a token is not reviewed again
_USER = f"system:serviceaccount:{NAMESPACE}:{NAME}"


class InstalledRevisions:
    """The revisions whose Deployment exists. `available` has those with an available replica, and `images` the image of each.

    `known` is set once they have been listed. `findings` is about labels of other ones.
    """

    def __init__(self) -> None:
        self.names: Latest[frozenset[str]] = Latest(frozenset())
        self.available: Latest[frozenset[str]] = Latest(frozenset())
        self.images: Mapping[str, str] = {}
        self.known = asyncio.Event()
        self.findings: Latest[tuple[Finding, ...]] = Latest(())

    async def run(self, reader: Reader) -> None:
        """Follow the Deployments of revisions until canceled."""
        deployments: dict[Key, Object] = {}
        async for step in follow(reader, "apps", "Deployment", NAMESPACE):
            if isinstance(step, Relist):
                deployments = {key_of(obj): obj for obj in step.items if _revision_of(obj)}
            elif step.type == "DELETED":
                deployments.pop(step.key, None)
            elif _revision_of(step.object):
                deployments[step.key] = step.object
            available = [obj for obj in deployments.values() if part(obj, "status").get("availableReplicas")]
            self.images = {_revision_of(obj): _image_of(obj) for obj in deployments.values()}
            self.available.set(frozenset(map(_revision_of, available)))
            self.names.set(frozenset(map(_revision_of, deployments.values())))
            self.known.set()

    async def find_missing(self, snapshot: Latest[Snapshot | None]) -> None:
        """Publish the findings about namespaces whose revision is not installed, until canceled."""
        await self.known.wait()
        while True:
            current = snapshot.get()
            self.findings.set(tuple(missing_revisions(current, self.names.get())) if current else ())
            await wait_for_change(snapshot, self.names)


def _revision_of(obj: Object) -> str:
    return str(labels_of(obj).get(REVISION, ""))


def _image_of(deployment: Object) -> str:
    containers = part(part(part(deployment, "spec"), "template"), "spec").get("containers") or ()
    return next((str(container.get("image", "")) for container in containers if container.get("name") == NAME), "")


def missing_revisions(snapshot: Snapshot, installed: frozenset[str]) -> Iterator[Finding]:
    """Yield a finding for each namespace whose label names a revision that is not installed."""
    for key, namespace in snapshot.of(Namespace):
        name = namespace.metadata.labels.get(REVISION, "")
        if name and name not in installed:
            message = (
                f"the revision {name} is not installed, so the default one serves the namespace and injects its sidecars;"
                f" install it with `headgate install --revision {name}`, or remove the label {REVISION}"
            )
            yield Finding(key, Reason.REVISION_NOT_FOUND, f"metadata.labels.{REVISION}", message)


def beside_revisions(sidecars: Sidecars, revisions: Latest[frozenset[str]], *, predicts: bool = False) -> Sidecars:
    """Return how the default revision adds sidecars: not in namespaces of `revisions`, whose webhooks add them.

    With `predicts`, pods of these namespaces count as pods that get a sidecar. A pod that gets one from both keeps that of the
    default revision, whose webhook the API server calls first, so `revisions` has those that answer: no pod gets none.
    """

    def decide(pod: Object, around: PodNamespace) -> InjectionDecision:
        decision, name = sidecars.decide(pod, around), around.labels.get(REVISION, "")
        if decision.injected and name in revisions.get():
            return InjectionDecision("Revision", name, injected=predicts)
        return decision

    return sidecars._replace(decide=decide)


class RevisionCalls:
    """Calls revisions over TLS, with the token of this replica's ServiceAccount. `certificate` has the roots that it trusts.

    `address` returns the `HOST:PORT` of a revision's server.
    """

    def __init__(
        self,
        credentials: CredentialSource,
        certificate: Latest[Credential],
        address: Callable[[str], str] = revision_server,
    ) -> None:
        self._credentials = credentials
        self._address = address
        self._certificate = certificate

    async def __call__(self, name: str, path: str, body: bytes) -> bytes:
        """Return the response of a revision to a request at a path. Raises HeadgateError."""
        connection = await self._credentials.connect()
        trust = ssl.create_default_context(cadata=self._certificate.get().roots)
        server, address = revision_server(name), self._address(name)
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        try:
            async with aiohttp.ClientSession(
                connector=RequestConnector(ssl=trust), timeout=timeout, headers=connection.headers()
            ) as session:
                with aborting():
                    async with session.post(f"https://{address}{path}", data=body, server_hostname=server) as response:
                        content = await response.read()
        except (OSError, aiohttp.ClientError) as error:
            raise Unavailable(f"revision {name} can't be reached at {address}: {describe(error)}") from error
        if response.status == 200:
            return content
        text = content.decode(errors="replace")[:200]
        raise ProxyError(f"revision {name} answers {response.status}: {text}")


class _User(Input, frozen=True, kw_only=True):
    username: str = ""


class _Status(Input, frozen=True, kw_only=True):
    authenticated: bool = False
    user: _User = _User()


class _Review(Input, frozen=True, kw_only=True):
    status: _Status = _Status()


class ControlPlaneTokens:
    """Verifies in a revision that a caller is a replica of the control plane."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._verified: dict[bytes, float] = {}  # the hash of a token, and when to review it again (monotonic)

    async def is_valid(self, authorization: str) -> bool:
        """Return whether a header has the token of the control plane's ServiceAccount. Raises HeadgateError."""
        token, now = authorization.removeprefix("Bearer ").strip(), time.monotonic()
        digest = hashlib.sha256(token.encode()).digest()
        self._verified = {each: until for each, until in self._verified.items() if until > now}
        if token and digest not in self._verified:
            review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
            status = msgspec.convert(await self._api.create(PATH, review), _Review).status
            if status.authenticated and status.user.username == _USER:
                self._verified[digest] = now + VERIFIED_S
        return digest in self._verified
