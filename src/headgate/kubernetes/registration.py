"""Registers the active replica: labels its pod, and distributes root certificates to the API server and to sidecars."""

import asyncio
import base64
import logging
from collections.abc import Iterator
from functools import partial

from headgate.api.aggregated_server import api_services
from headgate.api.computed_groups import REQUESTED_GROUPS
from headgate.compiler.snapshot import Snapshot
from headgate.errors import NotFound
from headgate.kubernetes.client import Client
from headgate.kubernetes.install.custom_resources import converted_kinds
from headgate.kubernetes.install.manifests import is_own_api_service
from headgate.kubernetes.names import ACTIVE, CONVERTS, NAME, NAMESPACE
from headgate.kubernetes.options import Options
from headgate.kubernetes.retries import ReconcileStep, Steps
from headgate.kubernetes.sidecar_roots import SidecarRoots
from headgate.latest import Latest, until, wait_for_any
from headgate.model.identities import Credential
from headgate.objects.ports import Store, version_of
from headgate.resources.meta import Object

RESTORE_S = 10.0

log = logging.getLogger(__name__)


class Registration:
    """Registers the active replica in its cluster. `certificate` contains the root certificates to distribute.

    It sets `trusted` to the root certificates that the API server and all sidecars have read. `store` has the ConfigMaps
    with the roots of sidecars; its lists and watches need no other objects (`sidecar_roots.SELECTORS`).

    Before `serve`, only the definitions get the CA bundle. The replica may have to list objects that the API server can't
    return without the conversion, and it serves only after that.
    """

    def __init__(
        self, store: Store, client: Client, options: Options, certificate: Latest[Credential], trusted: Latest[str]
    ) -> None:
        self._of_sidecars = SidecarRoots(store, certificate)
        self._client = client
        self._options = options
        self._certificate = certificate
        self._trusted = trusted
        self._in_bundles: Latest[str] = Latest("")
        self._serves: Latest[bool] = Latest(value=False)
        self._checked: dict[str, tuple[str, str]] = {}  # the version and the CA bundle of each object, by path

    def serve(self) -> None:
        """Write the label and the other CA bundles too: the replica serves now."""
        self._serves.set(value=True)

    async def run(self, snapshot: Latest[Snapshot | None]) -> None:
        """Write the label and the root certificates, and restore them after changes by other clients, until canceled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._restore(), name="label and CA bundles")
            await until(self._serves.get, self._serves)
            tasks.create_task(self._of_sidecars.run(snapshot), name="roots of sidecars")
            tasks.create_task(self._confirm(), name="trusted roots")

    async def _restore(self) -> None:
        """Write the label and the CA bundles that differ: after each change, and every RESTORE_S seconds.

        An upgrade may have reset them. A write that fails is tried again with growing pauses: without the label, no proxy
        finds this replica.
        """
        retries = Steps()
        while True:
            changes = self._certificate.next_change(), self._serves.next_change()
            roots, serves = self._certificate.get().roots, self._serves.get()
            bundle = base64.b64encode(roots.encode()).decode()
            steps = [*self._conversions(bundle), *(self._bundles_of_servers(bundle) if serves else ())]
            await retries.run(steps)
            if serves and not retries.failures:
                self._in_bundles.set(roots)
            await retries.wait(*changes, longest_s=RESTORE_S)

    def _conversions(self, bundle: str) -> Iterator[ReconcileStep]:
        """Yield the writes for conversions: the CA bundle of each definition, and the labels of pods that can't respond."""
        yield ReconcileStep("pods that are not ready stay in the Service of conversions", self._withdraw)
        for custom in converted_kinds():
            name = f"{custom.plural}.{custom.group}"
            yield self._step(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}", bundle)

    def _bundles_of_servers(self, bundle: str) -> Iterator[ReconcileStep]:
        """Yield the writes of the label and of the CA bundle of each other object."""
        yield ReconcileStep("the pod of the active replica can't be labeled", self._label)
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            yield self._step(f"/apis/admissionregistration.k8s.io/v1/{kind}/{NAME}", bundle)
        for service in api_services(f"{NAMESPACE}/{NAME}", b"", self._options.mesh):
            path = f"/apis/apiregistration.k8s.io/v1/apiservices/{service['metadata']['name']}"
            served = service["spec"]["group"], service["spec"]["version"]
            yield self._step(path, bundle, optional=served in REQUESTED_GROUPS)

    def _step(self, path: str, bundle: str, *, optional: bool = False) -> ReconcileStep:
        work = partial(self._amend, path, bundle, optional=optional)
        return ReconcileStep(f"the CA bundle of {path} can't be written", work, bundle)

    async def _confirm(self) -> None:
        """Set `trusted` to the roots that are in all bundles and ConfigMaps once the kubelets have read them."""
        while True:
            changes = [cell.next_change().wait() for cell in (self._in_bundles, self._of_sidecars.written)]
            roots = self._in_bundles.get()
            is_pending = roots == self._of_sidecars.written.get() != self._trusted.get()
            await wait_for_any(*changes, *([self._confirm_later(roots)] if is_pending else []))

    async def _confirm_later(self, roots: str) -> None:
        await asyncio.sleep(self._options.volume_seconds)
        self._trusted.set(roots)

    async def _label(self) -> None:
        """Label the pod, and remove the label from other pods: it stays on a pod whose container is killed."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        labeled = (await self._client.get(path, labelSelector=f"{ACTIVE}=true")).get("items") or ()
        names = {str(pod["metadata"]["name"]) for pod in labeled}
        for name in names ^ {self._options.pod}:
            value = "true" if name == self._options.pod else None
            await self._client.merge(f"{path}/{name}", {"metadata": {"labels": {ACTIVE: value}}})

    async def _withdraw(self) -> None:
        """Remove other pods that are not ready from the Service of conversions: a failed node or container keeps its label.

        This includes replicas that start, which return once they are ready: until then, this replica converts.
        """
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        for pod in (await self._client.get(path, labelSelector=f"{CONVERTS}=true")).get("items") or ():
            name = str(pod["metadata"]["name"])
            if name != self._options.pod and not _is_ready(pod):
                await self._client.merge(f"{path}/{name}", {"metadata": {"labels": {CONVERTS: None}}})

    async def _amend(self, path: str, bundle: str, *, optional: bool = False) -> None:
        """Write the CA bundle into an object. If `optional`, skip a missing object or another server's APIService.

        An object is read once in each version: to read all definitions takes the API server 80 ms of processor time.
        """
        try:
            if path in self._checked and self._checked[path] == (await self._client.version(path), bundle):
                return
            obj = await self._client.get(path)
        except NotFound:
            if not optional:
                log.warning("the object %s does not exist; run `headgate install` again", path)
            return
        if optional and not is_own_api_service(obj):
            return
        places = [hook["clientConfig"] for hook in obj.get("webhooks") or ()]
        spec = obj.get("spec") or {}
        places += [spec["conversion"]["webhook"]["clientConfig"]] if "webhook" in spec.get("conversion", {}) else []
        places += [spec] if obj["kind"] == "APIService" else []
        if any(place.get("caBundle") != bundle for place in places):
            for place in places:
                place["caBundle"] = bundle
            obj = await self._client.put(path, obj)
        self._checked[path] = version_of(obj), bundle


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any((condition["type"], condition["status"]) == ("Ready", "True") for condition in conditions)
