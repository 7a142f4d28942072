"""Registers the active replica: labels its pod, and distributes root certificates to the API server and to sidecars."""

import asyncio
import base64
import logging
from collections.abc import Coroutine, Iterator
from typing import Any

from headgate.admission.sidecar_containers import ROOTS_CONFIG_MAP, ROOTS_KEY
from headgate.api.aggregated_server import api_services
from headgate.api.metrics.custom import CUSTOM_METRICS
from headgate.compiler.snapshot import Snapshot
from headgate.errors import HeadgateError, NotFound
from headgate.kubernetes.client import Client
from headgate.kubernetes.install.custom_resources import converted_kinds
from headgate.kubernetes.install.manifests import is_own_api_service
from headgate.kubernetes.names import ACTIVE, NAME, NAMESPACE
from headgate.kubernetes.options import Options
from headgate.latest import Latest, wait_for_any
from headgate.model.identities import Credential
from headgate.objects.ports import Store
from headgate.resources.gateway import PROXY_OF
from headgate.resources.meta import Object
from headgate.resources.pods import SIDECAR, SIDECARS

RESTORE_S = 10.0

log = logging.getLogger(__name__)


class Registration:
    """Registers the active replica in its cluster. `certificate` contains the root certificates to distribute.

    It sets `trusted` to the root certificates that the API server and all sidecars have read.
    """

    def __init__(
        self, store: Store, client: Client, options: Options, certificate: Latest[Credential], trusted: Latest[str]
    ) -> None:
        self._store = store
        self._client = client
        self._options = options
        self._certificate = certificate
        self._trusted = trusted
        self._in_bundles: Latest[str] = Latest("")
        self._in_volumes: Latest[str] = Latest("")

    async def run(self, snapshot: Latest[Snapshot | None]) -> None:
        """Write the label and the root certificates, and restore them after changes by other clients, until canceled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._restore(), name="label and CA bundles")
            tasks.create_task(self._publish_roots(snapshot), name="roots of sidecars")
            tasks.create_task(self._confirm(), name="trusted roots")

    async def _restore(self) -> None:
        """Write the label and the CA bundles that differ: after each change of the roots, and every RESTORE_S seconds.

        An upgrade may have reset them.
        """
        while True:
            changed, roots, is_done = self._certificate.next_change(), self._certificate.get().roots, True
            for step in self._steps(roots):
                try:
                    await step
                except HeadgateError as error:
                    is_done = False
                    log.warning(
                        "the active replica can't be registered in the cluster, next attempt in %g s: %s",
                        RESTORE_S,
                        error,
                    )
            if is_done:
                self._in_bundles.set(roots)
            await wait_for_any(changed.wait(), asyncio.sleep(RESTORE_S))

    def _steps(self, roots: str) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the writes of the label and of the CA bundle of each object."""
        bundle = base64.b64encode(roots.encode()).decode()
        yield self._label()
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            yield self._amend(f"/apis/admissionregistration.k8s.io/v1/{kind}/{NAME}", bundle)
        for custom in converted_kinds():
            name = f"{custom.plural}.{custom.group}"
            yield self._amend(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}", bundle)
        services = api_services(f"{NAMESPACE}/{NAME}", b"", custom_metrics=self._options.custom_metrics)
        for service in services:
            path = f"/apis/apiregistration.k8s.io/v1/apiservices/{service['metadata']['name']}"
            yield self._amend(path, bundle, optional=service["spec"]["group"] == CUSTOM_METRICS[0])

    async def _publish_roots(self, snapshot: Latest[Snapshot | None]) -> None:
        """Write the ConfigMap with the root certificates to each namespace with proxies, until canceled."""
        published: dict[str, str] = {}
        while True:
            changed = snapshot.next_change(), self._certificate.next_change()
            roots = self._certificate.get().roots
            due = {name for name in _with_proxies(snapshot.get()) if published.get(name) != roots}
            published |= {name: roots for name in sorted(due) if await self._publish(name, roots)}
            is_done = all(published.get(name) == roots for name in due)
            self._in_volumes.set(roots if is_done else "")
            await wait_for_any(*(event.wait() for event in changed), *([] if is_done else [asyncio.sleep(RESTORE_S)]))

    async def _confirm(self) -> None:
        """Set `trusted` to the roots that are in all bundles and ConfigMaps once the kubelets have read them."""
        while True:
            changes = [cell.next_change().wait() for cell in (self._in_bundles, self._in_volumes)]
            roots = self._in_bundles.get()
            is_pending = roots == self._in_volumes.get() != self._trusted.get()
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

    async def _amend(self, path: str, bundle: str, *, optional: bool = False) -> None:
        """Write the CA bundle into an object. If `optional`, skip a missing object or another server's APIService."""
        try:
            found = await self._client.get(path)
        except NotFound:
            if not optional:
                log.warning("the object %s does not exist; run `headgate install` again", path)
            return
        if optional and not is_own_api_service(found):
            return
        places = [hook["clientConfig"] for hook in found.get("webhooks") or ()]
        spec = found.get("spec") or {}
        places += [spec["conversion"]["webhook"]["clientConfig"]] if "webhook" in spec.get("conversion", {}) else []
        places += [spec] if found["kind"] == "APIService" else []
        if any(place.get("caBundle") != bundle for place in places):
            for place in places:
                place["caBundle"] = bundle
            await self._client.put(path, found)

    async def _publish(self, namespace: str, roots: str) -> bool:
        """Write the ConfigMap to a namespace; return False if a retry is needed. A deleted namespace needs none."""
        metadata = {
            "name": ROOTS_CONFIG_MAP,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": NAME},
        }
        body: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {ROOTS_KEY: roots}}
        try:
            await self._store.apply(body, manager=NAME)
        except NotFound:
            return True
        except HeadgateError as error:
            log.warning(
                "the root certificates can't be written to namespace %s, so no proxy can start there: %s",
                namespace,
                error,
            )
            return False
        return True


def _with_proxies(snapshot: Snapshot | None) -> Iterator[str]:
    """Yield the namespace of each pod with a proxy."""
    for name, pod in snapshot.pods.items() if snapshot else ():
        if pod.metadata.annotations.get(SIDECAR) in SIDECARS or PROXY_OF in pod.metadata.annotations:
            yield name.partition("/")[0]
