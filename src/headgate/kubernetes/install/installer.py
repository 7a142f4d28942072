"""Applies or deletes the objects of an installation in a cluster."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from headgate.admission.injection import NAMESPACE_NAME
from headgate.admission.sidecar_containers import ROOTS_CONFIG_MAP
from headgate.api.computed_groups import REQUESTED_GROUPS
from headgate.errors import HeadgateError, Invalid, NotFound, Unavailable
from headgate.kinds import GATEWAY
from headgate.kubernetes.client import Client
from headgate.kubernetes.install.custom_resources import without_rules
from headgate.kubernetes.install.definitions import DEFINITION, Definitions, completed, is_installed
from headgate.kubernetes.install.manifests import LABELS, is_own_api_service
from headgate.kubernetes.install.roles import ACCOUNT, roles
from headgate.kubernetes.names import DEPLOYMENT_PATH, NAME, NAMESPACE
from headgate.kubernetes.permissions import Reviewer, Role, describe, permissions_of
from headgate.kubernetes.served_versions import RULES_OF_DEFINITIONS, is_since
from headgate.options import OPTIONS, MeshOptions, given_options
from headgate.resources.core.pod_metadata import REVISION, SIDECAR
from headgate.resources.gateway_api.gateway import OWN_CLASS
from headgate.resources.inspect import API_VERSION, GROUP, VERSION
from headgate.resources.meta import Object, annotations_of, epoch_seconds, labels_of

MANAGER = "headgate-install"
BUDGET_VERSIONS = ("policy/v1", "policy/v1beta1")
POLL_S = 0.5
_API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
_INSPECT_API = f"{_API_SERVICES}/{VERSION}.{GROUP}"
_RBAC = "rbac.authorization.k8s.io/v1"
_PRUNED = (
    (_RBAC, "roles", "Role"),
    (_RBAC, "rolebindings", "RoleBinding"),
    (_RBAC, "clusterroles", "ClusterRole"),
    (_RBAC, "clusterrolebindings", "ClusterRoleBinding"),
    ("apiregistration.k8s.io/v1", "apiservices", "APIService"),
    ("apps/v1", "daemonsets", "DaemonSet"),
    ("v1", "serviceaccounts", "ServiceAccount"),
)
_LABELED = ",".join(f"{name}={value}" for name, value in LABELS.items())
_OWN = f"{_LABELED},!{REVISION}"
log = logging.getLogger(__name__)
_OWN_NAMESPACE = f"/api/v1/namespaces/{NAMESPACE}"


def of_revision(name: str) -> str:
    """Return the selector of the objects that `headgate install` has applied for a revision."""
    return f"{_LABELED},{REVISION}={name}"


class Installer:
    """Applies and deletes objects with a client. Every method raises HeadgateError if the API server rejects a request."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._definitions = Definitions(client)
        self._resources: dict[str, dict[str, Any]] = {}

    async def budget_version(self) -> str:
        """Return the newest version of PodDisruptionBudgets that the cluster serves."""
        served = await self._client.get("/apis")
        versions = {version["groupVersion"] for group in served["groups"] for version in group["versions"]}
        return next((version for version in BUDGET_VERSIONS if version in versions), BUDGET_VERSIONS[0])

    async def apply(self, objects: Iterable[Object]) -> AsyncIterator[tuple[Object, str]]:
        """Apply objects in their order. Yield each with `created`, `configured` or `unchanged`."""
        with_rules = is_since(await self._client.get("/version"), RULES_OF_DEFINITIONS)
        for obj in objects:
            path = await self._path(obj)
            before = await self._existing(path)
            # API servers of Kubernetes 1.20 panic when an APIService is applied.
            write = self._replace if obj["kind"] == "APIService" else self._apply
            if obj["kind"] == DEFINITION:
                write = self._apply_definition if with_rules else self._apply_without_rules
            content = completed(before, obj) if obj["kind"] == DEFINITION else obj
            yield obj, _outcome(before, await write(path, before, content))

    async def migrate(self, objects: Iterable[Object]) -> AsyncIterator[tuple[Object, str]]:
        """Store all objects in headgate's versions, once a replica converts them. Yield each changed definition with the outcome."""
        with_rules = is_since(await self._client.get("/version"), RULES_OF_DEFINITIONS)
        write = self._apply_definition if with_rules else self._apply_without_rules
        for obj in objects:
            if obj["kind"] == DEFINITION and await self._definitions.needs_migration(obj):
                path = await self._path(obj)
                before = await self._client.get(path)
                await write(path, before, completed(before, obj, converts=True))
                yield obj, await self._definitions.migrate(obj)

    async def _existing(self, path: str) -> Object:
        """Return an object; empty if it does not exist."""
        try:
            return await self._client.get(path)
        except NotFound:
            return {}

    async def _apply(self, path: str, _before: Object, obj: Object) -> Object:
        return await self._client.apply(path, obj, manager=MANAGER)

    async def _apply_definition(self, path: str, before: Object, obj: Object) -> Object:
        """Apply a definition with its rules, or without them if the API server rejects it: admission checks them too."""
        try:
            return await self._apply(path, before, obj)
        except (Invalid, Unavailable) as error:
            log.warning("%s is installed without CEL rules: %s", obj["metadata"]["name"], error)
            return await self._apply_without_rules(path, before, obj)

    async def _apply_without_rules(self, path: str, before: Object, obj: Object) -> Object:
        return await self._apply(path, before, without_rules(obj))

    async def _replace(self, path: str, before: Object, obj: Object) -> Object:
        """Create an object, or update an existing one with the fields that `spec` of `obj` sets."""
        if not before:
            return await self._client.post(path.rpartition("/")[0], obj, fieldManager=MANAGER)
        spec = {**before["spec"], **obj["spec"]}
        return before if spec == before["spec"] else await self._client.put(path, {**before, "spec": spec})

    async def delete(self, objects: Iterable[Object]) -> AsyncIterator[tuple[Object, str]]:
        """Delete objects in reverse order, except those of another server or mesh. Yield each that exists, with `deleted` or `kept`."""
        for obj in reversed(list(objects)):
            path = await self._path(obj)
            try:
                if obj["kind"] == "APIService" and not is_own_api_service(await self._client.get(path)):
                    yield obj, "kept: it names the Service of another server"
                    continue
                if obj["kind"] == DEFINITION:
                    yield obj, await self._definitions.release(obj)
                    continue
                await self._client.remove(path, {"propagationPolicy": "Background"})
                yield obj, "deleted"
            except NotFound:
                continue

    async def delete_installation(self, objects: Sequence[Object]) -> AsyncIterator[tuple[Object, str]]:
        """Delete the objects of an installation and those of other options, and what the control plane created. Yield as `delete`.

        Webhooks that fail closed end first, and roles last: without its permissions, the control plane could not respond.
        """
        for deletion in (self.delete(objects), self.prune((), _LABELED)):
            async for deleted in deletion:
                yield deleted
        await self.delete_created()

    async def has_any(self, objects: Iterable[Object]) -> bool:
        """Return whether the cluster has one of the objects, and it is neither foreign nor being deleted."""
        for obj in objects:
            existing = await self._existing(await self._path(obj))
            is_foreign = existing and obj["kind"] == DEFINITION and not is_installed(existing)
            if existing and not is_foreign and not _is_terminating(existing):
                return True
        return False

    async def prune(self, objects: Sequence[Object], selector: str = _OWN) -> AsyncIterator[tuple[Object, str]]:
        """Delete roles, bindings, APIServices and the node agent of an installation with other options. Yield each with `deleted`.

        `selector` selects other objects than those of the default revision.
        """
        kept = {_identity(obj) for obj in objects}
        for version, plural, kind in _PRUNED:
            path = f"{_root(version)}/{plural}"
            listed = (await self._client.get(path, labelSelector=selector)).get("items") or ()
            stale = [
                stale_object
                for entry in listed
                if _identity(stale_object := {"apiVersion": version, "kind": kind, **entry}) not in kept
            ]
            async for deleted in self.delete(stale):
                yield deleted

    async def unblock_deletion(self, objects: Iterable[Object]) -> AsyncIterator[tuple[Object, str]]:
        """Remove what blocks the deletion of headgate's namespace and definitions. Yield each changed object with the outcome.

        Kubernetes deletes a namespace after it has read all APIs, also those of APIServices whose server is gone, and it
        deletes a definition after its objects, which the webhook of a replica may have to convert.
        """
        is_ending = _is_terminating(await self._existing(_OWN_NAMESPACE))
        if is_ending:
            for api_service in (await self._client.get(_API_SERVICES))["items"]:
                if is_own_api_service(api_service):
                    with contextlib.suppress(NotFound):
                        await self._client.remove(f"{_API_SERVICES}/{api_service['metadata']['name']}", {})
                    yield {"kind": "APIService", **api_service}, "deleted: its server is gone"
        for obj in objects:
            if obj["kind"] == DEFINITION and (before := await self._existing(await self._path(obj))):
                is_blocked = _is_terminating(before) or (is_ending and is_installed(before))
                changed = before
                with contextlib.suppress(NotFound):  # Kubernetes may have deleted it now
                    changed = await self._definitions.unconvert(obj) if is_blocked else before
                if changed != before:
                    yield obj, "configured: without the conversion, whose server is gone"

    async def wait_gone(self, objects: Sequence[Object]) -> None:
        """Wait until the namespace and the definitions among the objects are gone that are being deleted.

        The API server may fail meanwhile: many deletions keep it busy.
        """
        while True:
            with contextlib.suppress(Unavailable):
                if not await self.terminating(objects):
                    return
            await asyncio.sleep(POLL_S)  # one watch for each object would cost more

    async def terminating(self, objects: Iterable[Object]) -> Sequence[str]:
        """Return a line for the namespace and each definition that is being deleted, with what blocks its deletion."""
        lines = []
        for obj in objects:
            if obj["kind"] in (DEFINITION, "Namespace"):
                existing = await self._existing(await self._path(obj))
                if _is_terminating(existing):
                    blocked = " ".join(_blocked_by(existing)) or "it is being deleted"
                    lines.append(f"{obj['kind'].lower()}/{obj['metadata']['name']}: {blocked}")
        return lines

    async def check_options(self, mesh: MeshOptions) -> Sequence[str]:
        """Return the namespaces without the label that the webhooks select: those of the mesh, and `kube-system`.

        Kubernetes 1.20 writes no such labels. Raises HeadgateError if a namespace does not exist, or if another server serves
        a group that headgate should serve.
        """
        await self._check_requested_groups(mesh)
        unlabeled = []
        for name in (*mesh.namespaces, "kube-system"):
            try:
                namespace = await self._client.get(f"/api/v1/namespaces/{name}")
            except NotFound:
                raise HeadgateError(
                    f"the namespace {name} does not exist; create it, or remove it from --namespaces"
                ) from None
            if labels_of(namespace).get(NAMESPACE_NAME) != name:
                unlabeled.append(name)
        return unlabeled

    async def _check_requested_groups(self, mesh: MeshOptions) -> None:
        """Raise HeadgateError if another server serves a requested group: its clients would use headgate instead of it."""
        requested = {group.name: group.option for group in REQUESTED_GROUPS.values() if getattr(mesh, group.option)}
        for api_service in (await self._client.get(_API_SERVICES))["items"] if requested else ():
            group = api_service["spec"].get("group")
            if group in requested and not is_own_api_service(api_service):
                service = api_service["spec"].get("service") or {}
                raise HeadgateError(
                    f"the APIService {api_service['metadata']['name']} names the Service"
                    f" {service.get('namespace')}/{service.get('name')}, and a cluster can have only one server of {group};"
                    f" remove that server and its APIService, or omit {OPTIONS[requested[group]].flag}"
                )

    async def delete_created(self) -> None:
        """Delete what the control plane created outside its namespace: ConfigMaps with roots, and the GatewayClass."""
        path = f"/api/v1/configmaps?fieldSelector={quote(f'metadata.name={ROOTS_CONFIG_MAP}')}"
        for config_map in (await self._client.get(path)).get("items") or ():
            namespace = config_map["metadata"]["namespace"]
            with contextlib.suppress(NotFound):  # its namespace may be ending
                await self._client.remove(f"/api/v1/namespaces/{namespace}/configmaps/{ROOTS_CONFIG_MAP}", {})
        with contextlib.suppress(NotFound):  # also without the definition of GatewayClasses
            await self._client.remove(f"/apis/{GATEWAY}/v1/gatewayclasses/{OWN_CLASS}", {})

    async def pods_with_sidecar(self) -> Sequence[str]:
        """Return the pods that still have a sidecar and neither have ended nor are being deleted, as `namespace/name`."""
        pods = (await self._client.get("/api/v1/pods")).get("items") or ()
        return sorted(
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            for pod in pods
            if SIDECAR in annotations_of(pod) and not _is_ending(pod)
        )

    async def wait_ready(self) -> None:
        """Wait until all replicas of the control plane are ready and the aggregated APIs respond.

        Wait for the end of replaced replicas too: the API server keeps its connections to them, so they could still answer its
        webhook calls with their own image and options. The API server may fail meanwhile: the many new definitions keep it busy, and a small one may restart.
        """
        while not await self._is_ready():  # noqa: ASYNC110 - the API server sends no event for this
            await asyncio.sleep(POLL_S)

    async def _is_ready(self) -> bool:
        try:
            if not is_rolled_out(await self._client.get(DEPLOYMENT_PATH)) or await self.ending_replicas():
                return False
            if not await self._existing(_INSPECT_API):  # --no-aggregated-apis
                return True
            return bool(await self._client.get(f"/apis/{API_VERSION}/meshstatuses"))
        except (NotFound, Unavailable):
            return False

    async def ending_replicas(self) -> Sequence[str]:
        """Return a line for each replica of the installation before that still serves."""
        replicas = await self._client.get(f"{_OWN_NAMESPACE}/pods", labelSelector=f"app.kubernetes.io/name={NAME}")
        return [
            f"pod {pod['metadata']['name']} of the installation before has not ended yet"
            for pod in replicas.get("items") or ()
            if _still_serves(pod, time.time())
        ]

    async def _path(self, obj: Object) -> str:
        """Return the API path of an object. Raises HeadgateError if the cluster does not serve its kind."""
        version, kind, metadata = obj["apiVersion"], obj["kind"], obj["metadata"]
        root = _root(version)
        if version not in self._resources:
            resources = (await self._client.get(root)).get("resources") or ()
            self._resources[version] = {entry["kind"]: entry for entry in resources if "/" not in entry["name"]}
        resource = self._resources[version].get(kind)
        if resource is None:
            raise HeadgateError(f"the cluster does not serve {kind} in {version}")
        inside = f"/namespaces/{metadata['namespace']}" if resource["namespaced"] else ""
        return f"{root}{inside}/{resource['name']}/{quote(metadata['name'])}"


async def missing_permissions(client: Client) -> Sequence[str]:
    """Return a line for each permission that the installed control plane does not have. Raises HeadgateError."""
    try:
        needed = await _installed_roles(client)
    except ValueError as error:  # its version is another one
        return [f"its permissions can't be checked: {error}, which the installation has"]
    return describe(await Reviewer(client.post, *ACCOUNT).missing(permissions_of(needed)), needed)


async def _installed_roles(client: Client) -> Sequence[Role]:
    """Return the roles that the installed control plane needs with its options. Raises HeadgateError, and ValueError for unknown options."""
    containers = (await client.get(DEPLOYMENT_PATH))["spec"]["template"]["spec"]["containers"]
    arguments = next((container.get("args") or () for container in containers if container["name"] == NAME), ())
    return roles(given_options(arguments).mesh)


def _root(version: str) -> str:
    """Return the path at which the API server serves an apiVersion."""
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def _identity(obj: Object) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _outcome(before: Object, after: Object) -> str:
    """Return the outcome of a write: `created`, `configured` or `unchanged`.

    Ignores managedFields: some API servers update the timestamp of a field manager although no field changes.
    """
    if not before:
        return "created"
    return "unchanged" if _content(before) == _content(after) else "configured"


def _content(obj: Object) -> Object:
    metadata = {
        name: value for name, value in obj["metadata"].items() if name not in ("managedFields", "resourceVersion")
    }
    return {**obj, "metadata": metadata}


def _is_terminating(obj: Object) -> bool:
    return bool(obj) and "deletionTimestamp" in obj["metadata"]


def _blocked_by(obj: Object) -> Iterator[str]:
    """Yield the messages of a terminating namespace or definition about failures, as Kubernetes' controllers write them."""
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition["status"] == "True" and condition["type"].startswith(("Namespace", "Terminating")):
            yield str(condition.get("message", ""))


def _is_ending(pod: Object) -> bool:
    """Return whether a pod is being deleted, or all of its containers have ended for good."""
    return "deletionTimestamp" in pod["metadata"] or pod["status"].get("phase") in {"Succeeded", "Failed"}


def _still_serves(pod: Object, now: float) -> bool:
    """Return whether a pod that is being deleted has containers that run, except if its node fails to end them in time."""
    end = epoch_seconds(pod["metadata"].get("deletionTimestamp", ""))
    statuses = pod["status"].get("containerStatuses") or ()
    return now < end and any("running" in (status.get("state") or {}) for status in statuses)


def is_rolled_out(deployment: Object) -> bool:
    """Return whether all replicas of a Deployment are of its newest template, and ready."""
    status, replicas = deployment.get("status") or {}, deployment["spec"].get("replicas", 1)
    counts = [status.get(name, 0) for name in ("updatedReplicas", "replicas", "readyReplicas")]
    observed = int(status.get("observedGeneration", 0))
    return observed >= int(deployment["metadata"]["generation"]) and counts == [replicas] * len(counts)
