"""What the active control plane writes about itself: its label, the CA of the webhooks, and the roots for sidecars."""

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Iterator

from headgate.admission.sidecar_containers import ROOTS_CONFIG_MAP, ROOTS_KEY
from headgate.compiler.snapshot import Snapshot
from headgate.errors import HeadgateError, NotFound
from headgate.kubernetes.client import Client
from headgate.kubernetes.custom_resources import mesh_kinds
from headgate.kubernetes.options import Options
from headgate.latest import Latest
from headgate.model.identities import Credential
from headgate.objects.ports import Store
from headgate.resources.meta import Object
from headgate.resources.pods import SIDECAR, SIDECARS

ACTIVE = "headgate.dev/active"
"""The label of the active replica's pod; the Service of xDS and metrics selects it."""
MANAGER = "headgate"
WEBHOOKS = "headgate"
"""The name of both webhook configurations."""
RETRY_S = 2.0
_KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")

log = logging.getLogger(__name__)


class Registration:
    """Registers the active control plane in its cluster. `certificate` has the roots of the mesh."""

    def __init__(self, store: Store, client: Client, options: Options, certificate: Latest[Credential]) -> None:
        self._store = store
        self._client = client
        self._options = options
        self._certificate = certificate

    async def run(self, snapshot: Latest[Snapshot | None]) -> None:
        """Write the label, and keep the roots in all places where they are needed, until canceled."""
        await self._persist("its label", self._label)
        published: dict[str, str] = {}
        async for current in snapshot.changes():
            roots = self._certificate.get().roots
            if published.get("") != roots:
                await self._persist("the CA of the webhooks", self._trust_webhooks)
                published[""] = roots
            for namespace in sorted(set(_injected(current))):
                if published.get(namespace) != roots:
                    await self._publish(namespace, roots)
                    published[namespace] = roots

    async def _persist(self, what: str, write: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await write()
            except HeadgateError as error:
                log.warning("%s can't be written, next attempt in %g s: %s", what, RETRY_S, error)
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _label(self) -> None:
        path = f"/api/v1/namespaces/{self._options.namespace}/pods/{self._options.pod}"
        await self._client.merge(path, {"metadata": {"labels": {ACTIVE: "true"}}})

    async def _trust_webhooks(self) -> None:
        bundle = base64.b64encode(self._certificate.get().roots.encode()).decode()
        await self._trust_conversion(bundle)
        for kind in _KINDS:
            path = f"/apis/admissionregistration.k8s.io/v1/{kind}/{WEBHOOKS}"
            try:
                found = await self._client.get(path)
            except NotFound:
                log.warning("%s %s is missing: install headgate again", kind, WEBHOOKS)
                continue
            hooks = [
                {**hook, "clientConfig": {**hook["clientConfig"], "caBundle": bundle}} for hook in found["webhooks"]
            ]
            if hooks != found["webhooks"]:
                await self._client.put(path, {**found, "webhooks": hooks})

    async def _trust_conversion(self, bundle: str) -> None:
        """Write the CA of the conversion webhook into the CustomResourceDefinitions."""
        for kind in mesh_kinds():
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind.plural}.{kind.group}"
            try:
                found = await self._client.get(path)
            except NotFound:
                continue
            config = found["spec"].get("conversion", {}).get("webhook", {}).get("clientConfig")
            if config and config.get("caBundle") != bundle:
                config["caBundle"] = bundle
                await self._client.put(path, found)

    async def _publish(self, namespace: str, roots: str) -> None:
        metadata = {
            "name": ROOTS_CONFIG_MAP,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": MANAGER},
        }
        body: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {ROOTS_KEY: roots}}
        try:
            await self._store.apply(body, manager=MANAGER)
        except HeadgateError as error:
            log.warning("the roots can't be written to namespace %s, so its sidecars can't start: %s", namespace, error)


def _injected(snapshot: Snapshot | None) -> Iterator[str]:
    """Yield the namespace of each pod with a sidecar."""
    for name, pod in snapshot.pods.items() if snapshot else ():
        if pod.metadata.annotations.get(SIDECAR) in SIDECARS:
            yield name.partition("/")[0]
