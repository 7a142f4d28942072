"""Runs the gateways of Services: proxies behind a root Service, for clients without a sidecar (001 and 004; R32, D23).

Each has a Deployment and a PodDisruptionBudget in `headgate-system`, as the proxies of Gateways. An EndpointSlice leads from
the Service to its pods. The Service has no selector: a selector can't select pods of another namespace, and a pod of the
Service's own namespace could have the identity of a gateway only if users there had it too.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from headgate.admission.sidecar_containers import SidecarOptions
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Compiled, Finding, ServiceGateway
from headgate.compiler.service_gateways import READY, ready_message
from headgate.compiler.services import routed_ports
from headgate.compiler.snapshot import GATEWAY_SLICES, SERVICE_NAME_LABEL, SLICE_MANAGER_LABEL, Snapshot
from headgate.errors import NotFound
from headgate.kubernetes.gateway_findings import apply, missing_pods, rejections
from headgate.kubernetes.gateway_pods import gateway_pod, nginx_pod
from headgate.kubernetes.names import NAMESPACE
from headgate.kubernetes.proxy_objects import (
    DIGEST,
    applied_digest,
    digest_of,
    has_labels,
    object_metadata,
    own_labels,
    proxy_objects,
    with_digest,
)
from headgate.kubernetes.retries import ReconcileStep, Steps
from headgate.latest import Latest
from headgate.model.gateway_pods import gateway_pod_port
from headgate.model.identities import GATEWAY_ACCOUNT
from headgate.objects.ports import Events, Store, follow_all
from headgate.resources.discovery.endpoint_slice import EndpointSlice
from headgate.resources.gateway_api.proxies import NGINX, PROXY_OF_SERVICE, proxy_name
from headgate.resources.meta import Key, Object, annotations_of, part
from headgate.resources.registry import DISRUPTION_BUDGET, ENDPOINT_SLICE, POD, SERVICE

PROGRAM = "headgate-service-gateway"
START_DEADLINE_S = 60
"""Seconds after which a Deployment whose pods do not get ready is reported."""
_DEPLOYMENT = ("apps", "Deployment", NAMESPACE)
_OWN_KINDS = (_DEPLOYMENT, (POD.group, POD.kind, NAMESPACE))
_LABELS = own_labels(PROGRAM)


class WantedGateways(NamedTuple):
    """What the objects of users request: the gateways, the EndpointSlices of their Services, and those of gateways."""

    gateways: tuple[ServiceGateway, ...] = ()
    slices: Mapping[str, tuple[EndpointSlice, ...]] = {}
    written: Mapping[str, tuple[Key, EndpointSlice]] = {}


class ProxyImages(NamedTuple):
    """The options of the proxies' pods. `nginx` is an image with headgate and nginx; empty if the operator names none."""

    options: SidecarOptions
    nginx: str = ""

    def can_run(self, proxy: str) -> bool:
        """Return whether there is an image with a proxy."""
        return proxy != NGINX or bool(self.nginx)

    def pod(self, proxy: str) -> Object:
        """Return the spec of a pod that runs a proxy."""
        if proxy == NGINX:
            return nginx_pod(self.options, self.nginx)
        return {"serviceAccountName": GATEWAY_ACCOUNT, **gateway_pod(self.options, {})}


class ServiceGateways:
    """Creates, updates and deletes the objects of Service gateways.

    `findings` are about the objects that request gateways: the API server rejects an object, or no pod gets ready.
    """

    def __init__(
        self,
        store: Store,
        events: Events,
        options: ProxyImages,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.findings: Latest[tuple[Finding, ...]] = Latest(())
        self._store = store
        self._events = events
        self._images = options
        self._steps = Steps(clock)
        self._requested: WantedGateways | None = None
        self._changed = asyncio.Event()

    async def run(self, compiled: Latest[Compiled | None], snapshot: Latest[Snapshot | None]) -> None:
        """Reconcile after each change to what users request, and to the Deployments and pods, until canceled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(), name="Deployments and pods of gateways of Services")
            tasks.create_task(self._observe(compiled, snapshot), name="Services with gateways")
            await self._steps.repeat(self._reconcile_requested, self._changed, "gateways of Services can't be read")

    async def _follow(self) -> None:
        async for _ in follow_all(self._store, _OWN_KINDS):
            self._changed.set()

    async def _observe(self, compiled: Latest[Compiled | None], snapshot: Latest[Snapshot | None]) -> None:
        async for current in compiled.changes():
            objects = snapshot.get()
            if current and objects and (requested := requested_in(current, objects)) != self._requested:
                self._requested = requested
                self._changed.set()

    async def _reconcile_requested(self) -> None:
        if self._requested:
            await self.reconcile(self._requested)

    async def reconcile(self, requested: WantedGateways) -> None:
        """Apply the objects of gateways that changed, and delete those of gateways that no object requests.

        A failed step does not stop the remaining ones, and waits before its next attempt. Raises HeadgateError if the
        objects can't be read.
        """
        deployments = {deployment["metadata"]["name"]: deployment for deployment in await self._own(*_DEPLOYMENT)}
        pods = await self._own(POD.group, POD.kind, NAMESPACE)
        gateways = {_proxy_name(gateway.name): gateway for gateway in requested.gateways if not gateway.fault}
        steps, applied = [], dict[str, tuple[str, Key]]()
        for name, gateway in gateways.items():
            if self._images.can_run(gateway.proxy):
                step = self._deployment_step(name, gateway, deployments.get(name))
                applied[name] = step.failure, gateway.about
                steps.append(step)
            steps += self._slice_steps(gateway, requested, [pod for pod in pods if _runs(pod, gateway.name)])
        kept = {gateway.name for gateway in gateways.values()}
        for service, (key, _) in requested.written.items():
            if service not in kept:
                steps.append(self._deletion(f"the EndpointSlice of the former gateway of {service}", key))
        for name, deployment in deployments.items():
            if name not in gateways and _service_of(deployment) not in requested.written:
                budget = DISRUPTION_BUDGET.key(NAMESPACE, name)
                steps.append(self._deletion(f"the Deployment {name}", budget, Key(*_DEPLOYMENT, name)))
        await self._steps.run(steps)
        findings = (
            finding
            for name, (step, about) in applied.items()
            for finding in self._findings(step, about, deployments.get(name))
        )
        unknown = (
            _without_image(gateway.about) for gateway in gateways.values() if not self._images.can_run(gateway.proxy)
        )
        self.findings.set((*findings, *unknown))

    async def _own(self, group: str, kind: str, namespace: str) -> Sequence[Object]:
        """Return the gateways' objects of a kind."""
        return [obj for obj in (await self._store.list(group, kind, namespace)).items if has_labels(obj, _LABELS)]

    def _findings(self, step: str, about: Key, deployment: Object | None) -> Iterator[Finding]:
        """Yield the findings about the step that applies the objects of a gateway, else those about its pods."""
        if failure := self._steps.failures.get(step):
            yield from rejections(about, failure)
        elif deployment:
            yield from [*missing_pods(about, deployment)] or _unready(about, deployment)

    def _deployment_step(self, name: str, gateway: ServiceGateway, existing: Object | None) -> ReconcileStep:
        """Return the step that applies the Deployment and its budget, unless the Deployment's digest shows that it is applied."""
        metadata = object_metadata(name, PROGRAM, {}, {PROXY_OF_SERVICE: gateway.name})
        spec = self._images.pod(gateway.proxy)
        deployment, budget = proxy_objects(metadata, {PROXY_OF_SERVICE: gateway.name}, spec)
        deployment = {**deployment, "spec": {**deployment["spec"], "progressDeadlineSeconds": START_DEADLINE_S}}
        digest = digest_of([deployment, budget])
        failure = f"the gateway proxies of the Service {gateway.name} can't be updated"

        async def apply_both() -> None:
            if digest != applied_digest(existing) or failure in self._steps.failures:
                await apply(self._store, budget)
                await apply(self._store, with_digest(deployment, digest))

        return ReconcileStep(failure, apply_both, digest)

    def _slice_steps(
        self, gateway: ServiceGateway, requested: WantedGateways, pods: Sequence[Object]
    ) -> Iterator[ReconcileStep]:
        """Yield the step that leads clients to a gateway, or past it.

        The slice is written once a pod is ready. If a user gives the Service a selector again, the slice is deleted when the
        selected pods are endpoints, so that clients always have an endpoint.
        """
        key, before = requested.written.get(gateway.name, (None, None))
        has_other_endpoints = any(slice_.endpoints for slice_ in requested.slices.get(gateway.name, ()))
        if gateway.service.spec.selected and (has_other_endpoints or not key):
            if key:
                yield self._deletion(f"the gateway's EndpointSlice of {gateway.name}", key)
            return
        new_slice = endpoint_slice(gateway, pods)
        if not key and not any(endpoint["conditions"]["ready"] for endpoint in new_slice["endpoints"]):
            return
        digest = digest_of(new_slice)
        if before is None or before.metadata.annotations.get(DIGEST) != digest:
            failure = f"the gateway's EndpointSlice of the Service {gateway.name} can't be updated"
            work = partial(self._lead, gateway, with_digest(new_slice, digest), is_first=before is None)
            yield ReconcileStep(failure, work, digest)

    async def _lead(self, gateway: ServiceGateway, new_slice: Object, *, is_first: bool) -> None:
        await apply(self._store, new_slice)
        if is_first:
            proxies = f"the proxies of the Deployment {NAMESPACE}/{_proxy_name(gateway.name)}"
            message = ready_message(gateway.name, proxies)
            await self._events.record(gateway.about, type="Normal", reason=READY, message=message)

    def _deletion(self, what: str, *keys: Key) -> ReconcileStep:
        async def delete() -> None:
            for key in keys:
                with contextlib.suppress(NotFound):
                    await self._store.delete(key)

        return ReconcileStep(f"{what} can't be deleted", delete)


def requested_in(compiled: Compiled, snapshot: Snapshot) -> WantedGateways:
    """Return what the objects of users request; the snapshot is the compiled one, or a newer one."""
    gateways = compiled.report.service_gateways
    return WantedGateways(
        gateways, {gateway.name: snapshot.slices.get(gateway.name, ()) for gateway in gateways}, snapshot.gateway_slices
    )


def endpoint_slice(gateway: ServiceGateway, pods: Sequence[Object]) -> Object:
    """Return the EndpointSlice that leads from a Service to the pods of its gateway.

    A pod that ends serves until its clients have closed their connections. kube-proxy uses it if no other pod is ready.
    """
    key, service = gateway.key, gateway.service
    is_ipv6 = ":" in service.spec.cluster_ip
    endpoints = (endpoint for pod in pods for endpoint in _endpoints(pod, is_ipv6=is_ipv6))
    owner = {"apiVersion": SERVICE.hub, "kind": SERVICE.kind, "name": key.name, "uid": service.metadata.uid}
    return {
        "apiVersion": ENDPOINT_SLICE.hub,
        "kind": ENDPOINT_SLICE.kind,
        "metadata": {
            "name": f"{key.name}-{GATEWAY_SLICES}",
            "namespace": key.namespace,
            "labels": {SERVICE_NAME_LABEL: key.name, SLICE_MANAGER_LABEL: GATEWAY_SLICES},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": False}],
        },
        "addressType": "IPv6" if is_ipv6 else "IPv4",
        "endpoints": sorted(endpoints, key=lambda endpoint: endpoint["targetRef"]["name"]),
        "ports": [
            {"name": port.name, "port": gateway_pod_port(port.port), "protocol": "TCP"}
            for port in routed_ports(service)
        ],
    }


def _endpoints(pod: Object, *, is_ipv6: bool) -> Iterator[Mapping[str, Any]]:
    """Yield the endpoint of a pod; nothing before it has an address, and after it has ended."""
    metadata, status = pod["metadata"], part(pod, "status")
    addresses = [entry["ip"] for entry in status.get("podIPs") or ()] or [status.get("podIP")]
    fitting = [address for address in addresses if address and (":" in address) == is_ipv6]
    if not fitting or status.get("phase") in ("Succeeded", "Failed"):
        return
    serving = any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in status.get("conditions") or ()
    )
    is_ending = bool(metadata.get("deletionTimestamp"))
    endpoint = {
        "addresses": fitting[:1],
        "conditions": {"ready": serving and not is_ending, "serving": serving, "terminating": is_ending},
        "targetRef": {name: metadata[name] for name in ("name", "namespace", "uid")} | {"kind": POD.kind},
    }
    node = part(pod, "spec").get("nodeName")
    yield {**endpoint, "nodeName": node} if node else endpoint


def _unready(about: Key, deployment: Object) -> Iterator[Finding]:
    """Yield a finding if no pod of a Deployment has become ready in time."""
    status = part(deployment, "status")
    progress = next(
        (condition for condition in status.get("conditions") or () if condition["type"] == "Progressing"), None
    )
    if progress and progress["status"] == "False" and not status.get("availableReplicas"):
        name = f"{NAMESPACE}/{deployment['metadata']['name']}"
        message = (
            f"no pod of the Deployment {name} is ready after {START_DEADLINE_S} s, so clients without a sidecar can't use the "
            f"gateway; look at its pods with kubectl -n {NAMESPACE} describe pods"
        )
        yield Finding(about, Reason.GATEWAY_NOT_READY, "", message)


def _without_image(about: Key) -> Finding:
    message = (
        "no image with nginx is known; request the gateway envoy instead of nginx, or let an operator run headgate "
        "install with --nginx-image"
    )
    return Finding(about, Reason.GATEWAY_NOT_READY, "", message)


def _proxy_name(service: str) -> str:
    namespace, _, name = service.partition("/")
    return proxy_name(namespace, name, of="service")


def _service_of(obj: Object) -> str:
    """Return the Service (`namespace/name`) of a gateway's Deployment or pod."""
    return str(annotations_of(obj).get(PROXY_OF_SERVICE, ""))


def _runs(pod: Object, service: str) -> bool:
    return _service_of(pod) == service
