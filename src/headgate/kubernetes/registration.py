"""Registers the active replica: labels its pod, and distributes root certificates to the API server and to sidecars."""

import asyncio
import base64
import logging
from collections.abc import Iterator

from headgate.admission.sidecar_containers import ROOTS_CONFIG_MAP, ROOTS_KEY
from headgate.api.metrics.custom import CUSTOM_METRICS
from headgate.compiler.snapshot import Snapshot
from headgate.errors import HeadgateError, NotFound
from headgate.kubernetes.client import Client
from headgate.kubernetes.install.custom_resources import mesh_kinds
from headgate.kubernetes.install.manifests import every_api_service, is_own_api_service
from headgate.kubernetes.names import ACTIVE, NAME, NAMESPACE
from headgate.kubernetes.options import Options
from headgate.latest import Latest
from headgate.model.identities import Credential
from headgate.objects.ports import Store
from headgate.resources.gateway import PROXY_OF
from headgate.resources.meta import Object
from headgate.resources.pods import SIDECAR, SIDECARS

RESTORE_S = 10.0

log = logging.getLogger(__name__)


class Registration:
    """Registers the active replica in its cluster. `certificate` contains the root certificates to distribute."""

    def __init__(self, store: Store, client: Client, options: Options, certificate: Latest[Credential]) -> None:
        self._store = store
        self._client = client
        self._options = options
        self._certificate = certificate

    async def run(self, snapshot: Latest[Snapshot | None]) -> None:
        """Write the label and the root certificates, and restore them after changes by other clients, until canceled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._restore(), name="label and CA bundles")
            tasks.create_task(self._publish_roots(snapshot), name="roots of sidecars")

    async def _restore(self) -> None:
        """Every RESTORE_S seconds, write the label and the CA bundles that differ; an upgrade may have reset them."""
        while True:
            try:
                await self._label()
                await self._trust()
            except HeadgateError as error:
                log.warning(
                    "the active replica can't be registered in the cluster, next attempt in %g s: %s", RESTORE_S, error
                )
            await asyncio.sleep(RESTORE_S)

    async def _publish_roots(self, snapshot: Latest[Snapshot | None]) -> None:
        """Write the ConfigMap with the root certificates to each namespace with proxies, until canceled."""
        published: dict[str, str] = {}
        async for current in snapshot.changes():
            roots = self._certificate.get().roots
            for namespace in sorted(set(_with_proxies(current))):
                if published.get(namespace) != roots:
                    await self._publish(namespace, roots)
                    published[namespace] = roots

    async def _label(self) -> None:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{self._options.pod}"
        if ((await self._client.get(path))["metadata"].get("labels") or {}).get(ACTIVE) != "true":
            await self._client.merge(path, {"metadata": {"labels": {ACTIVE: "true"}}})

    async def _trust(self) -> None:
        """Write the CA bundle into the webhook configurations, CustomResourceDefinitions and APIServices."""
        bundle = base64.b64encode(self._certificate.get().roots.encode()).decode()
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            await self._amend(f"/apis/admissionregistration.k8s.io/v1/{kind}/{NAME}", bundle)
        for custom in mesh_kinds():
            name = f"{custom.plural}.{custom.group}"
            await self._amend(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}", bundle)
        for service in every_api_service():
            path = f"/apis/apiregistration.k8s.io/v1/apiservices/{service['metadata']['name']}"
            await self._amend(path, bundle, optional=service["spec"]["group"] == CUSTOM_METRICS[0])

    async def _amend(self, path: str, bundle: str, *, optional: bool = False) -> None:
        """Write the CA bundle into an object. An optional one may not exist, or be an APIService of another server."""
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

    async def _publish(self, namespace: str, roots: str) -> None:
        metadata = {
            "name": ROOTS_CONFIG_MAP,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": NAME},
        }
        body: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {ROOTS_KEY: roots}}
        try:
            await self._store.apply(body, manager=NAME)
        except HeadgateError as error:
            log.warning(
                "the root certificates can't be written to namespace %s, so no proxy can start there: %s",
                namespace,
                error,
            )


def _with_proxies(snapshot: Snapshot | None) -> Iterator[str]:
    """Yield the namespace of each pod with a proxy."""
    for name, pod in snapshot.pods.items() if snapshot else ():
        if pod.metadata.annotations.get(SIDECAR) in SIDECARS or PROXY_OF in pod.metadata.annotations:
            yield name.partition("/")[0]
