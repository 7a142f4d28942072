"""Runs proxies for each Gateway: a Deployment, a PodDisruptionBudget and a Service in `headgate-system`.

The proxies have the ServiceAccount `gateway`, and no user may create pods in that namespace. So no other pod can get the
identity of a gateway or the certificates of its listeners.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import chain

from headgate.admission.sidecar_containers import SidecarOptions
from headgate.compiler.gateway_api.parameters import Parameters
from headgate.compiler.report import Compiled, Finding, GatewayOutcome
from headgate.errors import Invalid, NotFound
from headgate.kubernetes.gateway_findings import NotApplied, apply, missing_pods, rejections
from headgate.kubernetes.gateway_pods import gateway_pod
from headgate.kubernetes.names import NAMESPACE
from headgate.kubernetes.proxy_objects import (
    applied_digest,
    digest_of,
    has_labels,
    object_metadata,
    own_labels,
    pod_selector,
    proxy_objects,
    with_digest,
)
from headgate.kubernetes.retries import ReconcileStep, Steps
from headgate.kubernetes.store import Selectors
from headgate.latest import Latest, until
from headgate.model.gateway_pods import gateway_pod_port
from headgate.model.identities import GATEWAY_ACCOUNT
from headgate.objects.gateways import KINDS, ensure_class, own_gateways, write_addresses
from headgate.objects.ports import Store, follow_all, version_of
from headgate.resources.gateway_api.gateway import HOSTNAME, IP_ADDRESS, Gateway
from headgate.resources.gateway_api.proxies import GATEWAY_NAME, PARAMETERS, PROXY_OF, gateway_label, proxy_name
from headgate.resources.meta import Key, Object
from headgate.resources.registry import key_of

CLASS_DESCRIPTION = "Envoy in pods of headgate-system, programmed by headgate."
WITH_PARAMETERS: Selectors = {("", "ConfigMap"): {"labelSelector": f"{PARAMETERS}=true"}}
"""The selectors of a store that has no other ConfigMaps than those with parameters.

Clusters have many others, which change often: each change would read all of them.
"""
_OWN_KINDS = (("", "Service", NAMESPACE), ("apps", "Deployment", NAMESPACE))
SCALER = "headgate-replicas"
"""The field manager of `replicas`. It never gives up the field, so the number stays when the parameter is removed."""
_PROGRAM = "headgate-gateway"
_LABELS = own_labels(_PROGRAM)

log = logging.getLogger(__name__)


class GatewayProxies:
    """Creates, updates and deletes the objects of Gateways, and writes the addresses of their Services.

    Lists and watches of `store` need no ConfigMaps but those that WITH_PARAMETERS selects.
    `findings` say which Gateways have objects that the API server rejects. `set_ports` has the ports of ListenerSets, by the
    `namespace/name` of their Gateway.
    """

    def __init__(self, store: Store, options: SidecarOptions, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.findings: Latest[tuple[Finding, ...]] = Latest(())
        self.set_ports: Mapping[str, frozenset[tuple[int, bool]]] = {}
        self._store = store
        self._options = options
        self._steps = Steps(clock)
        self._pods: dict[
            str, tuple[str, tuple[Finding, ...]]
        ] = {}  # by Deployment: its version, findings about its pods
        self._changed = asyncio.Event()

    async def run(self, compiled: Latest[Compiled | None]) -> None:
        """Reconcile after each change to a Gateway, its class or parameters, its Service or Deployment, until canceled.

        A change to the ports of ListenerSets counts too. The first mesh is awaited: without it, Services would lose these ports.
        """
        await until(lambda: compiled.get() is not None, compiled)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(), name="changes to Gateways")
            tasks.create_task(self._follow_sets(compiled), name="ports of ListenerSets")
            await self._steps.repeat(self.reconcile, self._changed, "Gateways can't be read")

    async def _follow_sets(self, compiled: Latest[Compiled | None]) -> None:
        outcomes: tuple[GatewayOutcome, ...] = ()
        async for current in compiled.changes():
            if current and current.report.gateways is not outcomes:
                outcomes, before = current.report.gateways, self.set_ports
                self.set_ports = set_ports(outcomes)
                if self.set_ports != before:
                    self._changed.set()

    async def _follow(self) -> None:
        async for _ in follow_all(self._store, [*KINDS, *_OWN_KINDS]):
            self._changed.set()

    async def reconcile(self) -> None:
        """Apply the objects of each Gateway that changed, delete those of deleted Gateways, and write the addresses.

        A Gateway that is not accepted keeps its objects. A failed step does not stop the remaining ones, and waits before
        its next attempt. Raises HeadgateError if the objects can't be read.
        """
        listed = (await self._store.list("", "Service", NAMESPACE)).items
        services = {obj["metadata"]["name"]: obj for obj in listed if has_labels(obj, _LABELS)}
        listed = (await self._store.list("apps", "Deployment", NAMESPACE)).items
        deployments = {obj["metadata"]["name"]: version_of(obj) for obj in listed if has_labels(obj, _LABELS)}
        gateways = {_name(own.gateway): own for own in await own_gateways(self._store)}
        steps = [ReconcileStep("the GatewayClass can't be created", self._ensure_class)]
        applied: dict[str, tuple[str, Key]] = {}
        for name, own in gateways.items():
            if own.parameters is not None:
                step = self._apply_step(own.gateway, own.parameters, services.get(name))
                applied[name] = step.failure, key_of(own.stored)
                steps.append(step)
            if name in deployments and deployments[name] != self._pods.get(name, ("",))[0]:
                read = partial(self._read_deployment, key_of(own.stored), name)
                failure = f"the Deployment of the Gateway {_namespaced(own.gateway)} can't be read"
                steps.append(ReconcileStep(failure, read, deployments[name]))
            write = partial(write_addresses, self._store, own.stored, _addresses(services.get(name)))
            steps.append(
                ReconcileStep(f"the addresses of the Gateway {_namespaced(own.gateway)} can't be written", write)
            )
        steps += [
            ReconcileStep(f"the objects of the deleted Gateway of {name} can't be deleted", partial(self._delete, name))
            for name in (services.keys() | deployments.keys()) - gateways.keys()
        ]
        await self._steps.run(steps)
        self._pods = {name: pods for name, pods in self._pods.items() if name in gateways and name in deployments}
        self.findings.set(
            tuple(chain.from_iterable(self._findings(name, *applied_step) for name, applied_step in applied.items()))
        )

    def _findings(self, name: str, step: str, gateway: Key) -> Iterable[Finding]:
        """Return the findings about the step that applies the objects of a Gateway, else those about its pods."""
        failure = self._steps.failures.get(step)
        findings = tuple(rejections(gateway, failure)) if failure else ()
        return findings or self._pods.get(name, ("", ()))[1]

    async def _read_deployment(self, gateway: Key, name: str) -> None:
        deployment = await self._store.get(Key("apps", "Deployment", NAMESPACE, name))
        self._pods[name] = version_of(deployment), tuple(missing_pods(gateway, deployment))

    async def _ensure_class(self) -> None:
        """Create the GatewayClass `headgate` unless it exists, or the cluster has no definition of GatewayClasses."""
        try:
            await ensure_class(self._store, CLASS_DESCRIPTION)
        except NotFound as error:
            log.debug("the GatewayClass can't be created: %s", error)

    def _apply_step(self, gateway: Gateway, parameters: Parameters, service: Object | None) -> ReconcileStep:
        """Return the step that applies the objects of a Gateway, unless the digest in its Service shows that they are applied.

        After a failure, the objects are applied regardless of the digest, because some of them may have changed.
        """
        ports = self.set_ports.get(_namespaced(gateway), frozenset())
        objects = gateway_objects(gateway, parameters, self._options, ports)
        digest = digest_of([objects, parameters.replicas, gateway.spec.addresses])
        name = f"the proxies of the Gateway {_namespaced(gateway)} can't be updated"

        async def apply_all() -> None:
            if digest != applied_digest(service) or name in self._steps.failures:
                complete = (*objects[:-1], _with_address_of(service, objects[-1]))
                await self._apply(complete, gateway, parameters, digest)

        return ReconcileStep(name, apply_all, digest)

    async def _apply(self, objects: Sequence[Object], gateway: Gateway, parameters: Parameters, digest: str) -> None:
        """Apply the objects of a Gateway. The Service is the last, so its digest shows that all objects are applied."""
        deployment, budget, service = objects
        await apply(self._store, deployment)
        if parameters.replicas is not None:
            own = {name: deployment["metadata"][name] for name in ("name", "namespace")}
            scale = {"metadata": own, "spec": {"replicas": parameters.replicas}}
            await apply(self._store, {**deployment, **scale}, manager=SCALER)
        await apply(self._store, budget)
        await self._apply_service(with_digest(service, digest), gateway)

    async def _apply_service(self, service: Object, gateway: Gateway) -> None:
        """Apply a Service with the first requested address that the API server accepts, else without a requested address."""
        field = "loadBalancerIP" if service["spec"]["type"] == "LoadBalancer" else "clusterIP"
        for address in (requested.value for requested in gateway.spec.addresses if requested.value):
            try:
                await apply(self._store, {**service, "spec": {**service["spec"], field: address}})
            except NotApplied as error:
                if not isinstance(error.error, Invalid):
                    raise
                log.warning("the Gateway %s can't have the address %s: %s", _namespaced(gateway), address, error)
            else:
                return
        await apply(self._store, service)

    async def _delete(self, name: str) -> None:
        """Delete the objects of a deleted Gateway, last those by which `reconcile` finds it."""
        for group, kind in (("policy", "PodDisruptionBudget"), ("apps", "Deployment"), ("", "Service")):
            key = Key(group, kind, NAMESPACE, name)
            try:
                await self._store.delete(key)
            except NotFound:
                continue


def set_ports(outcomes: Iterable[GatewayOutcome]) -> Mapping[str, frozenset[tuple[int, bool]]]:
    """Return the ports (`Listener.socket`) of the served listeners of ListenerSets, by the `namespace/name` of their Gateway."""
    ports: dict[str, set[tuple[int, bool]]] = defaultdict(set)
    for outcome in outcomes:
        if outcome.sets is None:
            ports[outcome.gateway].update(
                (listener.port, listener.is_udp) for listener in outcome.listeners if listener.is_served
            )
    return {gateway: frozenset(numbers) for gateway, numbers in ports.items() if numbers}


def gateway_objects(
    gateway: Gateway,
    parameters: Parameters,
    options: SidecarOptions,
    more_ports: AbstractSet[tuple[int, bool]] = frozenset(),
) -> tuple[Object, Object, Object]:
    """Return the Deployment, the PodDisruptionBudget and the Service of a Gateway; ListenerSets have `more_ports`."""
    name, added = _name(gateway), gateway.spec.infrastructure
    labels = {**added.labels, GATEWAY_NAME: gateway_label(gateway.metadata.name)}
    metadata = object_metadata(name, _PROGRAM, labels, added.annotations)
    annotations = {**added.annotations, PROXY_OF: _namespaced(gateway)}
    spec = {"serviceAccountName": GATEWAY_ACCOUNT, **gateway_pod(options, parameters.resources)}
    selector = pod_selector(_PROGRAM, name)
    ports = [
        {
            "name": f"{'udp' if is_udp else 'port'}-{port}",
            "port": port,
            "targetPort": gateway_pod_port(port),
            "protocol": "UDP" if is_udp else "TCP",
        }
        for port, is_udp in sorted({*more_ports, *(listener.socket for listener in gateway.spec.listeners)})
    ]
    return (
        *proxy_objects(metadata, annotations, spec),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {**metadata, "annotations": {**parameters.service_annotations, **added.annotations}},
            "spec": {"type": parameters.service_type, "selector": selector, "ports": ports},
        },
    )


def _name(gateway: Gateway) -> str:
    return proxy_name(gateway.metadata.namespace, gateway.metadata.name)


def _namespaced(gateway: Gateway) -> str:
    return f"{gateway.metadata.namespace}/{gateway.metadata.name}"


def _with_address_of(service: Object | None, new: Object) -> Object:
    """Return the new Service with the clusterIP that it has already.

    A clusterIP can't be removed. An apply without it would fail if headgate had set it because of `spec.addresses`.
    """
    address = service["spec"].get("clusterIP") if service else None
    return {**new, "spec": {**new["spec"], "clusterIP": address}} if address else new


def _addresses(service: Object | None) -> Sequence[Mapping[str, str]]:
    """Return the addresses of a Service: those of its load balancer, else its clusterIP."""
    if service is None:
        return []
    balancer = (service.get("status") or {}).get("loadBalancer") or {}
    balanced = [
        {"type": kind, "value": entry[field]}
        for entry in balancer.get("ingress") or ()
        for field, kind in (("ip", IP_ADDRESS), ("hostname", HOSTNAME))
        if entry.get(field)
    ]
    address = service["spec"].get("clusterIP")
    return balanced or ([{"type": IP_ADDRESS, "value": address}] if address else [])
