"""Runs a proxy for each Gateway: a Deployment and a Service in `headgate-system`.

The proxies have the ServiceAccount `gateway`, and no user may create pods in that namespace. So no other pod can get the
identity of a gateway or the certificates of its listeners.
"""

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headgate.admission.sidecar_containers import SidecarOptions, gateway_pod
from headgate.errors import HeadgateError, NotFound
from headgate.kubernetes.names import NAME, NAMESPACE
from headgate.kubernetes.retries import pauses
from headgate.model.gateway_pods import gateway_pod_port
from headgate.model.identities import GATEWAY_ACCOUNT
from headgate.objects.gateways import KINDS, ensure_class, own_gateways, write_addresses
from headgate.objects.ports import Store, follow_all
from headgate.resources.gateway import HOSTNAME, IP_ADDRESS, PROXY_OF, Gateway, proxy_name
from headgate.resources.meta import Key, Object

CLASS_DESCRIPTION = "Envoy in pods of headgate-system, programmed by headgate."
DIGEST = "headgate.dev/applied-digest"
_LABELS = {"app.kubernetes.io/name": "headgate-gateway", "app.kubernetes.io/managed-by": NAME}
_INSTANCE = "app.kubernetes.io/instance"

log = logging.getLogger(__name__)


class GatewayProxies:
    """Creates, updates and deletes the Deployments and Services of Gateways, and writes the addresses of the Services."""

    def __init__(self, store: Store, options: SidecarOptions) -> None:
        self._store = store
        self._options = options

    async def run(self) -> None:
        """Reconcile after each change of a Gateway, a GatewayClass or a Service of a Gateway, until canceled."""
        async for _ in follow_all(self._store, [*KINDS, ("", "Service", NAMESPACE)]):
            for pause in pauses():
                try:
                    await self.reconcile()
                    break
                except HeadgateError as error:
                    log.warning("the proxies of Gateways can't be updated, next attempt in %.1f s: %s", pause, error)
                    await asyncio.sleep(pause)

    async def reconcile(self) -> None:
        """Apply the objects of each Gateway that changed, delete those of deleted Gateways, and write the addresses.

        Raises HeadgateError.
        """
        listed = (await self._store.list("", "Service", NAMESPACE)).items
        services = {item["metadata"]["name"]: item for item in listed if _is_of_gateway(item)}
        gateways = {_name(item.gateway): item for item in await own_gateways(self._store)}
        for name, own in gateways.items():
            await self._apply(own.gateway, services.get(name))
            await write_addresses(self._store, own.stored, _addresses(services.get(name)))
        for name in services.keys() - gateways.keys():
            await self._delete(name)
        await self._ensure_class()

    async def _ensure_class(self) -> None:
        """Create the GatewayClass `headgate` unless it exists, or the cluster has no definition of GatewayClasses."""
        try:
            await ensure_class(self._store, CLASS_DESCRIPTION)
        except NotFound as error:
            log.debug("the GatewayClass can't be created: %s", error)

    async def _apply(self, gateway: Gateway, service: Object | None) -> None:
        objects = gateway_objects(gateway, self._options)
        digest = hashlib.sha256(msgspec.json.encode(objects)).hexdigest()
        if service is not None and (service["metadata"].get("annotations") or {}).get(DIGEST) == digest:
            return
        for obj in objects:  # the Service is applied last, so its digest shows that all objects are applied
            metadata = {**obj["metadata"], "annotations": {DIGEST: digest}}
            await self._store.apply({**obj, "metadata": metadata}, manager=NAME)

    async def _delete(self, name: str) -> None:
        """Delete the Deployment and then the Service of a deleted Gateway."""
        for key in (Key("apps", "Deployment", NAMESPACE, name), Key("", "Service", NAMESPACE, name)):
            try:
                await self._store.delete(key)
            except NotFound:
                continue


def gateway_objects(gateway: Gateway, options: SidecarOptions) -> Sequence[Object]:
    """Return the Deployment and the Service of a Gateway.

    The Deployment has no `replicas`, so that users and autoscalers can set them.
    """
    name = _name(gateway)
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {**_LABELS, _INSTANCE: name}}
    selector = {"app.kubernetes.io/name": _LABELS["app.kubernetes.io/name"], _INSTANCE: name}
    namespaced = f"{gateway.metadata.namespace}/{gateway.metadata.name}"
    pod = {
        "metadata": {"labels": metadata["labels"], "annotations": {PROXY_OF: namespaced}},
        "spec": {"serviceAccountName": GATEWAY_ACCOUNT, **gateway_pod(options)},
    }
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    ports = [
        {"name": f"port-{port}", "port": port, "targetPort": gateway_pod_port(port), "protocol": "TCP"}
        for port in sorted({listener.port for listener in gateway.spec.listeners})
    ]
    return (
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {"selector": {"matchLabels": selector}, "strategy": strategy, "template": pod},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"type": "ClusterIP", "selector": selector, "ports": ports},
        },
    )


def _name(gateway: Gateway) -> str:
    return proxy_name(gateway.metadata.namespace, gateway.metadata.name)


def _is_of_gateway(service: Object) -> bool:
    labels: Mapping[str, Any] = service["metadata"].get("labels") or {}
    return all(labels.get(name) == value for name, value in _LABELS.items())


def _addresses(service: Object | None) -> Sequence[Mapping[str, str]]:
    """Return the addresses of a Service: those of its load balancer, else its clusterIP."""
    if service is None:
        return []
    balancer = (service.get("status") or {}).get("loadBalancer") or {}
    found = [
        {"type": kind, "value": item[field]}
        for item in balancer.get("ingress") or ()
        for field, kind in (("ip", IP_ADDRESS), ("hostname", HOSTNAME))
        if item.get(field)
    ]
    address = service["spec"].get("clusterIP")
    return found or ([{"type": IP_ADDRESS, "value": address}] if address else [])
