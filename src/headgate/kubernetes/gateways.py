"""Runs proxies for each Gateway: a Deployment, a PodDisruptionBudget and a Service in `headgate-system`.

The proxies have the ServiceAccount `gateway`, and no user may create pods in that namespace. So no other pod can get the
identity of a gateway or the certificates of its listeners.
"""

import asyncio
import hashlib
import logging
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from headgate.admission.sidecar_containers import SidecarOptions, gateway_pod
from headgate.compiler.gateway_api.parameters import Parameters
from headgate.errors import HeadgateError, Invalid, NotFound
from headgate.kubernetes.names import NAME, NAMESPACE
from headgate.kubernetes.retries import pauses
from headgate.model.gateway_pods import gateway_pod_port
from headgate.model.identities import GATEWAY_ACCOUNT
from headgate.objects.gateways import KINDS, OwnGateway, ensure_class, own_gateways, write_addresses
from headgate.objects.ports import Store, follow_all
from headgate.resources.gateway import HOSTNAME, IP_ADDRESS, OWN_KEYS, PROXY_OF, Gateway, proxy_name
from headgate.resources.meta import Key, Object
from headgate.resources.registry import DISRUPTION_BUDGET

CLASS_DESCRIPTION = "Envoy in pods of headgate-system, programmed by headgate."
DIGEST = "headgate.dev/applied-digest"
SCALER = "headgate-replicas"
"""The field manager of `replicas`. It never gives up the field, so the number stays when the parameter is removed."""
_NAME, _INSTANCE, _MANAGED_BY = OWN_KEYS
_LABELS = {_NAME: "headgate-gateway", _MANAGED_BY: NAME}

log = logging.getLogger(__name__)


class GatewayProxies:
    """Creates, updates and deletes the objects of Gateways, and writes the addresses of their Services."""

    def __init__(self, store: Store, options: SidecarOptions) -> None:
        self._store = store
        self._options = options

    async def run(self) -> None:
        """Reconcile after each change of a Gateway, of its class or parameters, or of its Service, until canceled."""
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

        A Gateway that is not accepted keeps its objects. Rejected objects of a Gateway are logged. A failed step does not
        stop the remaining ones. Raises HeadgateError.
        """
        listed = (await self._store.list("", "Service", NAMESPACE)).items
        services = {item["metadata"]["name"]: item for item in listed if _is_of_gateway(item)}
        gateways = {_name(item.gateway): item for item in await own_gateways(self._store)}
        await _all_of(self._steps(services, gateways))

    def _steps(
        self, services: Mapping[str, Object], gateways: Mapping[str, OwnGateway]
    ) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the writes one by one, so that none is left without an await when `run` is canceled."""
        yield self._ensure_class()
        for name, own in gateways.items():
            if own.parameters is not None:
                yield self._try_to_apply(own.gateway, own.parameters, services.get(name))
            yield write_addresses(self._store, own.stored, _addresses(services.get(name)))
        for name in services.keys() - gateways.keys():
            yield self._delete(name)

    async def _ensure_class(self) -> None:
        """Create the GatewayClass `headgate` unless it exists, or the cluster has no definition of GatewayClasses."""
        try:
            await ensure_class(self._store, CLASS_DESCRIPTION)
        except NotFound as error:
            log.debug("the GatewayClass can't be created: %s", error)

    async def _try_to_apply(self, gateway: Gateway, parameters: Parameters, service: Object | None) -> None:
        objects = gateway_objects(gateway, parameters, self._options)
        wanted = [objects, parameters.replicas, gateway.spec.addresses]
        digest = hashlib.sha256(msgspec.json.encode(wanted)).hexdigest()
        if service is not None and (service["metadata"].get("annotations") or {}).get(DIGEST) == digest:
            return
        try:
            await self._apply((*objects[:-1], _with_address_of(service, objects[-1])), gateway, parameters, digest)
        except Invalid as error:
            log.warning("the API server rejects the objects of the Gateway %s: %s", _namespaced(gateway), error)

    async def _apply(self, objects: Sequence[Object], gateway: Gateway, parameters: Parameters, digest: str) -> None:
        """Apply the objects of a Gateway. The Service is the last, so its digest shows that all objects are applied."""
        deployment, budget, service = objects
        await self._store.apply(deployment, manager=NAME)
        if parameters.replicas is not None:
            own = {name: deployment["metadata"][name] for name in ("name", "namespace")}
            scale = {"metadata": own, "spec": {"replicas": parameters.replicas}}
            await self._store.apply({**deployment, **scale}, manager=SCALER)
        await self._store.apply(budget, manager=NAME)
        annotations = {**service["metadata"]["annotations"], DIGEST: digest}
        await self._apply_service({**service, "metadata": {**service["metadata"], "annotations": annotations}}, gateway)

    async def _apply_service(self, service: Object, gateway: Gateway) -> None:
        """Apply a Service with the first requested address that the API server accepts, else without a requested address."""
        field = "loadBalancerIP" if service["spec"]["type"] == "LoadBalancer" else "clusterIP"
        for address in (item.value for item in gateway.spec.addresses if item.value):
            try:
                await self._store.apply({**service, "spec": {**service["spec"], field: address}}, manager=NAME)
            except Invalid as error:
                log.warning("the Gateway %s can't have the address %s: %s", _namespaced(gateway), address, error)
            else:
                return
        await self._store.apply(service, manager=NAME)

    async def _delete(self, name: str) -> None:
        """Delete the objects of a deleted Gateway, its Service last."""
        for group, kind in (("apps", "Deployment"), ("policy", "PodDisruptionBudget"), ("", "Service")):
            key = Key(group, kind, NAMESPACE, name)
            try:
                await self._store.delete(key)
            except NotFound:
                continue


def gateway_objects(gateway: Gateway, parameters: Parameters, options: SidecarOptions) -> tuple[Object, Object, Object]:
    """Return the Deployment, the PodDisruptionBudget and the Service of a Gateway.

    The Deployment has no `replicas`, so that users and autoscalers can set them.
    """
    name, added = _name(gateway), gateway.spec.infrastructure
    labels = {**added.labels, **_LABELS, _INSTANCE: name}
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels, "annotations": dict(added.annotations)}
    selector = {_NAME: _LABELS[_NAME], _INSTANCE: name}
    pod = {
        "metadata": {"labels": labels, "annotations": {**added.annotations, PROXY_OF: _namespaced(gateway)}},
        "spec": {"serviceAccountName": GATEWAY_ACCOUNT, **gateway_pod(options, parameters.resources)},
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
            "apiVersion": DISRUPTION_BUDGET.hub,
            "kind": DISRUPTION_BUDGET.kind,
            "metadata": metadata,
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector}},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {**metadata, "annotations": {**parameters.service_annotations, **added.annotations}},
            "spec": {"type": parameters.service_type, "selector": selector, "ports": ports},
        },
    )


async def _all_of(steps: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all steps in order, even if some fail; then raise the first HeadgateError."""
    failure: HeadgateError | None = None
    for step in steps:
        try:
            await step
        except HeadgateError as error:
            failure = failure or error
    if failure:
        raise failure


def _name(gateway: Gateway) -> str:
    return proxy_name(gateway.metadata.namespace, gateway.metadata.name)


def _namespaced(gateway: Gateway) -> str:
    return f"{gateway.metadata.namespace}/{gateway.metadata.name}"


def _is_of_gateway(service: Object) -> bool:
    labels: Mapping[str, Any] = service["metadata"].get("labels") or {}
    return all(labels.get(name) == value for name, value in _LABELS.items())


def _with_address_of(service: Object | None, wanted: Object) -> Object:
    """Return the wanted Service with the clusterIP that it has already.

    A clusterIP can't be removed. An apply without it would fail if headgate had set it because of `spec.addresses`.
    """
    address = service["spec"].get("clusterIP") if service else None
    return {**wanted, "spec": {**wanted["spec"], "clusterIP": address}} if address else wanted


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
