"""The ConfigMap `headgate-roots`: the root certificates that proxies trust, in each namespace with proxies."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from headgate.admission.sidecar_containers import ROOTS_CONFIG_MAP
from headgate.compiler.snapshot import KindSource, Snapshot
from headgate.envoy.proxy_container import ROOTS_KEY
from headgate.errors import Invalid, NotFound
from headgate.kubernetes.names import NAME
from headgate.kubernetes.retries import ReconcileStep, Steps
from headgate.latest import Latest, until
from headgate.model.identities import Credential
from headgate.objects.ports import Relist, Store, follow
from headgate.resources.core.namespace import Namespace
from headgate.resources.core.pod import MeshPod
from headgate.resources.core.pod_metadata import SIDECAR, SIDECARS
from headgate.resources.gateway_api.proxies import PROXY_OF, PROXY_OF_SERVICE
from headgate.resources.meta import Key, Object, part
from headgate.resources.registry import key_of

SELECTORS: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("", "ConfigMap"): {"fieldSelector": f"metadata.name={ROOTS_CONFIG_MAP}"}
}
"""The selectors of a `kubernetes.store.ClusterStore` that lists and watches no other ConfigMaps."""


class _Observed(NamedTuple):
    """The roots in a ConfigMap, empty without ConfigMap, and the number of the change that the watch reported last."""

    roots: str
    change: int


class SidecarRoots:
    """Writes the ConfigMaps, and restores them after changes by other clients and in namespaces that are created again.

    `written` has the roots that are in all namespaces with proxies, or empty while some namespaces lack them.
    """

    def __init__(self, store: Store, certificate: Latest[Credential]) -> None:
        self.written: Latest[str] = Latest("")
        self._store = store
        self._certificate = certificate
        self._observed: dict[str, _Observed] = {}
        self._absent = _Observed("", 0)  # of namespaces that `_observed` lacks
        self._changes: Latest[int] = Latest(0)  # 0 until the ConfigMaps have been listed
        self._namespaces = NamespacesWithProxies()
        self._applied: dict[str, tuple[str, _Observed]] = {}
        """By namespace: the roots that were applied last, and what was observed before.

        The watch has not yet reported this write while the same is observed, so it is not repeated.
        """

    async def run(self, snapshot: Latest[Snapshot | None]) -> None:
        """Keep the ConfigMaps up to date until canceled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(), name="ConfigMaps with roots")
            await until(lambda: bool(self._changes.get() and snapshot.get()), self._changes, snapshot)
            steps = Steps()
            while True:
                changed = [value.next_change() for value in (snapshot, self._certificate, self._changes)]
                await self._reconcile(steps, snapshot.get())
                await steps.wait(*changed)

    async def _follow(self) -> None:
        async with contextlib.aclosing(follow(self._store, "", "ConfigMap")) as steps:
            async for step in steps:
                change = self._changes.get() + 1
                if isinstance(step, Relist):
                    self._absent = _Observed("", change)
                    named = {
                        key_of(config_map): config_map
                        for config_map in step.items
                        if config_map["metadata"]["name"] == ROOTS_CONFIG_MAP
                    }
                    self._observed = {
                        key.namespace: _Observed(_roots(config_map), change) for key, config_map in named.items()
                    }
                elif step.key.name == ROOTS_CONFIG_MAP:
                    roots = "" if step.type == "DELETED" else _roots(step.object)
                    self._observed[step.key.namespace] = _Observed(roots, change)
                else:
                    continue
                self._changes.set(change)

    async def _reconcile(self, steps: Steps, snapshot: Snapshot | None) -> None:
        """Apply the ConfigMaps that differ. A failed write is repeated with growing pauses."""
        roots = self._certificate.get().roots
        due = [name for name in self._namespaces.of(snapshot) if self._is_due(name, roots)]
        if any(self._observed.get(name, self._absent).roots for name in due):
            self.written.set("")  # pods may have read other roots: the time until kubelets have read these starts again
        failure = "the root certificates can't be written to namespace {}, so no proxy can start there"
        await steps.run([ReconcileStep(failure.format(name), partial(self._write, name, roots), roots) for name in due])
        self.written.set("" if steps.failures else roots)

    def _is_due(self, namespace: str, roots: str) -> bool:
        observed = self._observed.get(namespace, self._absent)
        return observed.roots != roots and self._applied.get(namespace) != (roots, observed)

    async def _write(self, namespace: str, roots: str) -> None:
        observed = self._observed.get(namespace, self._absent)
        try:
            await self._apply(namespace, roots)
        except NotFound:  # the namespace is deleted, and the snapshot still has a pod of it
            return
        self._applied[namespace] = roots, observed

    async def _apply(self, namespace: str, roots: str) -> None:
        metadata = {
            "name": ROOTS_CONFIG_MAP,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": NAME},
        }
        body: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {ROOTS_KEY: roots}}
        try:
            await self._store.apply(body, manager=NAME)
        except Invalid:  # another client has made it immutable, or has added `binaryData` with the same key
            with contextlib.suppress(NotFound):
                await self._store.delete(Key("", "ConfigMap", namespace, ROOTS_CONFIG_MAP))
            await self._store.apply(body, manager=NAME)


def _roots(config_map: Object) -> str:
    return str(part(config_map, "data").get(ROOTS_KEY, ""))


class NamespacesWithProxies:
    """Finds the namespaces that have a pod with a proxy and are not terminating.

    Keeps the result while no pod and no Namespace changes: with 10,000 pods, finding them takes some milliseconds.
    """

    def __init__(self) -> None:
        self._sources: tuple[KindSource, ...] = ()
        self._found: Sequence[str] = ()

    def of(self, snapshot: Snapshot | None) -> Sequence[str]:
        """Return the namespaces in order."""
        if snapshot is None:
            return ()
        sources = pods, namespaces = snapshot.source(MeshPod), snapshot.source(Namespace)
        if len(self._sources) != len(sources) or not all(map(_is_same, self._sources, sources)):
            every = chain(pods.objects.items(), pods.fail_closed.items())
            with_proxies = {
                key.namespace for key, pod in every if not pod.ended and _has_proxy(pod.metadata.annotations)
            }
            terminating = {
                key.name for key, namespace in namespaces.objects.items() if namespace.metadata.deletion_timestamp
            }
            self._sources, self._found = sources, sorted(with_proxies - terminating)
        return self._found


def _is_same(before: KindSource, now: KindSource) -> bool:
    return before.objects is now.objects and before.fail_closed == now.fail_closed


def _has_proxy(annotations: Mapping[str, str]) -> bool:
    return annotations.get(SIDECAR) in SIDECARS or PROXY_OF in annotations or PROXY_OF_SERVICE in annotations
