"""Missing permissions on a real API server with RBAC: each is named, the rest works, and all works once it is granted."""

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
import yaml
from tests.cluster.api_server import MERGE, KubeApiServer
from tests.cluster.control_planes import RunningReplica, eventually, running
from tests.cluster.installation import SYSTEM
from tests.xds.proxies import Proxy
from typer.testing import CliRunner, Result

from headgate.backoff import Backoff
from headgate.cli.app import app
from headgate.kinds import METRICS_KINDS
from headgate.kubernetes import permissions, registration
from headgate.kubernetes.client import path_of
from headgate.kubernetes.install.custom_resources import converted_kinds
from headgate.kubernetes.install.roles import roles
from headgate.kubernetes.permissions import MissingPermissions, Permission, Role, RoleRule, permissions_of
from headgate.options import MeshOptions
from headgate.resources.gateway_api.proxies import proxy_name
from headgate.resources.registry import find_written

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROLES = roles(MeshOptions(custom_metrics=True, external_metrics=True))
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SHOP = "/api/v1/namespaces/shop"
SPLITS = "/apis/split.smi-spec.io/v1alpha4/namespaces/shop/trafficsplits"
GROUPS = "/apis/specs.smi-spec.io/v1alpha4/namespaces/shop/httproutegroups"
CANARIES = "/apis/headgate.dev/v1beta1/namespaces/shop/canaries"
GATEWAYS = "/apis/gateway.networking.k8s.io/v1/namespaces/shop/gateways"
DEPLOYMENTS = "/apis/apps/v1/namespaces/headgate-system/deployments"
SLICES = "/apis/discovery.k8s.io/v1beta1/namespaces/shop/endpointslices"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/headgate-system/leases/headgate-control-plane"
OBJECTS = """
apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: web-1, labels: {app: website}, annotations: {headgate.dev/sidecar-mode: transparent}}
spec:
  serviceAccountName: web
  containers: [{name: web, image: web, ports: [{name: web, containerPort: 8080}]}]
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: website}
spec: {selector: {app: website}, ports: [{port: 8080, targetPort: web}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: typo}
spec: {selector: {app: website}, ports: [{port: 8080, targetPort: wbe}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: asking, annotations: {headgate.dev/gateway: envoy}}
spec: {ports: [{port: 8080}]}
---
apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata: {namespace: shop, name: canary}
spec: {service: website, backends: [{service: gone, weight: 1}]}
---
apiVersion: gateway.networking.x-k8s.io/v1alpha1
kind: XAuthorizationPolicy
metadata: {name: web, namespace: shop}
spec: {targetRefs: [{group: "", kind: Pod, selector: {matchLabels: {app: web}}}], action: ALLOW}
---
apiVersion: gateway.networking.x-k8s.io/v1alpha1
kind: XMesh
metadata: {name: shop}
spec: {controllerName: headgate.dev/mesh-controller}
---
apiVersion: gateway.networking.x-k8s.io/v1alpha1
kind: XBackend
metadata: {name: api, namespace: shop}
spec: {type: ExternalHostname, externalHostname: {hostname: api.example.com}, port: {port: 443}}
---
apiVersion: gateway.networking.x-k8s.io/v1alpha1
kind: XBackendTrafficPolicy
metadata: {name: limit, namespace: shop}
spec: {targetRefs: [{group: "", kind: Service, name: website}], retryConstraint: {budget: {percent: 10}}}
---
apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: {namespace: shop, name: allow}
spec: {destination: {kind: ServiceAccount, name: web}, rules: [], sources: [{kind: ServiceAccount, name: web}]}
---
apiVersion: headgate.dev/v1beta1
kind: TLSConfig
metadata: {namespace: shop, name: strict}
spec: {selector: {matchLabels: {app: website}}}
---
apiVersion: headgate.dev/v1beta1
kind: Canary
metadata: {namespace: shop, name: first}
spec: {service: first, backends: [{service: website, weight: 1}]}
---
apiVersion: headgate.dev/v1beta1
kind: Canary
metadata: {namespace: shop, name: second}
spec:
  service: second
  backends: [{service: website, weight: 1}, {service: gone, weight: 1}]
  analysis: {canary: gone, matches: [{name: testers, headers: {x-tester: "yes"}}]}
---
apiVersion: headgate.dev/v1beta1
kind: Sidecar
metadata: {namespace: shop, name: agent}
spec: {selector: {}, containers: [{name: agent, image: agent}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {namespace: shop, name: edge}
spec: {gatewayClassName: headgate, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {namespace: shop, name: web}
spec: {parentRef: {name: edge}, listeners: [{name: http, port: 81, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {namespace: shop, name: web}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: website, port: 8080}, {group: gateway.networking.x-k8s.io, kind: XBackend, name: api}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {namespace: shop, name: web}
spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: website, port: 8080}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {namespace: shop, name: web}
spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: website, port: 8080}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {namespace: shop, name: web}
spec: {parentRefs: [{name: edge}], hostnames: [web.example], rules: [{backendRefs: [{name: website, port: 8080}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: UDPRoute
metadata: {namespace: shop, name: web}
spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: website, port: 8080}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {namespace: shop, name: web}
spec:
  targetRefs: [{group: "", kind: Service, name: website}]
  validation: {hostname: website.example, wellKnownCACertificates: System}
"""
SELDOM_USED = {
    Permission("get", group, resource)
    for group, resource in (
        ("", "pods"),
        ("access.smi-spec.io", "traffictargets"),
        ("discovery.k8s.io", "endpointslices"),
        ("gateway.networking.k8s.io", "grpcroutes"),
        ("gateway.networking.k8s.io", "httproutes"),
        ("gateway.networking.k8s.io", "listenersets"),
        ("gateway.networking.k8s.io", "referencegrants"),
        ("gateway.networking.k8s.io", "tcproutes"),
        ("gateway.networking.k8s.io", "tlsroutes"),
        ("gateway.networking.x-k8s.io", "xauthorizationpolicies"),
        ("gateway.networking.x-k8s.io", "xbackends"),
        ("gateway.networking.x-k8s.io", "xbackendtrafficpolicies"),
        ("gateway.networking.x-k8s.io", "xmeshes"),
        ("gateway.networking.k8s.io", "backendtlspolicies"),
        ("gateway.networking.k8s.io", "udproutes"),
        ("headgate.dev", "canaries"),
        ("headgate.dev", "sidecars"),
        ("headgate.dev", "tlsconfigs"),
        ("specs.smi-spec.io", "httproutegroups"),
        ("specs.smi-spec.io", "tcproutes"),
        ("specs.smi-spec.io", "udproutes"),
    )
} | {
    *(Permission(verb, "", "events") for verb in ("get", "create", "update")),
    *(Permission(verb, "batch", "cronjobs") for verb in ("list", "watch")),
}
"""Objects of these kinds are read only for an Event about a mistake in them, pods for the sidecars of Jobs, and objects
with a status after a conflict, or when many objects have changed since.

Events of the core group are written only about GatewayClasses, or if the API server has no events.k8s.io/v1. CronJobs are read for
taps of them, from Kubernetes 1.21 on, which serves them as batch/v1.
"""
VERBS = sorted({verb for role in ROLES for rule in role.rules for verb in rule.verbs})


@pytest.fixture(scope="module")
def shop(cluster: KubeApiServer) -> None:
    """The namespace `shop`, no keys of an authority, and the Lease of a replica that has ended."""
    cluster.namespace("shop")
    assert cluster.call("DELETE", f"{SYSTEM}/secrets/headgate-ca")[0] in {200, 404}  # the replica writes new bundles
    held = {"holderIdentity": "another", "leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:00.000000Z"}
    cluster.make(LEASE.rpartition("/")[0], {"metadata": {"name": "headgate-control-plane"}, "spec": held})


class Start(NamedTuple):
    """A replica that was started without any permission, with its log and `headgate status` before they were granted."""

    plane: RunningReplica
    log: list[str]
    status: Result


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def start(cluster: KubeApiServer, shop: None) -> AsyncIterator[Start]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(permissions, "MISSING_S", 1.0)
        patch.setattr(permissions, "ALL_S", 3.0)
        patch.setattr(permissions, "REVIEW_PAUSE_S", 0)
        patch.setattr(registration, "RESTORE_S", 1.0)
        patch.setattr(Backoff, "next_pause", lambda _backoff: 1.0)  # a denied request succeeds soon after it is granted
        changed = stack.enter_context(without(cluster, *VERBS))
        async with running(cluster, patch, custom_metrics=True, external_metrics=True) as plane:
            await eventually(
                lambda: not any(unnamed(plane.log, *rule, verb) for rule in changed for verb in rule[1].verbs)
            )
            # The API server may not have the APIServices yet, for which the exit code is 1.
            while (status := await asyncio.to_thread(_status, cluster)).exit_code == 1:
                await asyncio.sleep(0.1)
            log = list(plane.log)
            stack.close()
            await eventually(plane.served)
            await eventually(lambda: follows_again(cluster))  # without `list` it could not
            yield Start(plane, log, status)


def follows_again(cluster: KubeApiServer) -> bool:
    """Return whether the control plane follows all kinds again after it wrote its CA bundle into their definitions.

    The API server ends the watches of a kind about a second after a change to its definition, and the kind is listed again.
    """
    steps = {kind.plural: ["update", "watch", "list"] for kind in converted_kinds()}
    for event in cluster.audit_log.events():
        target = event.get("objectRef") or {}
        of_definition = target.get("resource") == "customresourcedefinitions"
        plural = target.get("name", "").partition(".")[0] if of_definition else target.get("resource", "")
        is_done = event["stage"] == "ResponseComplete" and event.get("responseStatus", {}).get("code") == 200
        if plural not in steps or not is_done or of_definition != (event["verb"] == "update"):
            continue
        if of_definition:  # a later change ends the watches again
            steps[plural] = ["watch", "list"]
        elif [event["verb"]] == steps[plural][:1]:
            del steps[plural][0]
    return not any(steps.values())


def _status(cluster: KubeApiServer) -> Result:
    return CliRunner().invoke(app, ["status", "--kubeconfig", str(cluster.kubeconfig())])


@pytest_asyncio.fixture(loop_scope="module")
async def plane(start: Start) -> RunningReplica:
    """A replica that is active, and has noticed that all permissions are granted."""
    await eventually(start.plane.has_all_permissions)
    return start.plane


def _path(role: Role) -> str:
    """Return the path of a role or, for a role of Kubernetes, of its binding."""
    scope = f"/namespaces/{role.namespace}" if role.namespace else ""
    if not role.binding:
        return f"{RBAC}{scope}/{role.kind.lower()}s/{role.name}"
    kind = "rolebindings" if role.namespace else "clusterrolebindings"
    return f"{RBAC}{scope}/{kind}/{role.binding}"


@contextmanager
def without(cluster: KubeApiServer, *verbs: str, spared: str = "") -> Iterator[list[tuple[Role, RoleRule]]]:
    """Remove verbs from all roles, except for the resource `spared`. Yield the changed rules."""
    changed = [
        (role, rule)
        for role in ROLES
        for rule in role.rules
        if {*verbs} & {*rule.verbs} and spared not in rule.resources
    ]
    before = {path: cluster.call("GET", path)[1] for path in {_path(role) for role, _ in changed}}
    for path, found in before.items():
        kept = [_without(rule, verbs) if spared not in rule["resources"] else rule for rule in found.get("rules", ())]
        if kept:
            assert cluster.call("PUT", path, {**found, "rules": [rule for rule in kept if rule["verbs"]]})[0] == 200
        else:
            assert cluster.call("DELETE", path)[0] == 200  # a binding of a role of Kubernetes
    try:
        yield changed
    finally:
        for path, found in before.items():
            metadata = {"name": found["metadata"]["name"], "labels": found["metadata"]["labels"]}
            assert cluster.call("PUT", path, {**found, "metadata": metadata})[0] in {200, 201}


async def named(plane: RunningReplica, changed: Iterable[tuple[Role, RoleRule]], verb: str, *, since: int) -> None:
    """Wait until the log names a verb of all changed rules after the line `since`: the API server denies it then."""
    await eventually(lambda: not any(unnamed(plane.log[since:], *one, verb) for one in changed), of=verb)


def _without(rule: dict[str, Any], verbs: Collection[str]) -> dict[str, Any]:
    return {**rule, "verbs": [one for one in rule["verbs"] if one not in verbs]}


def unnamed(lines: Iterable[str], role: Role, rule: RoleRule, verb: str) -> list[str]:
    """Return the resources of a rule that no line names with the verb, the consequence and the remedy."""
    ends = f": {rule.without}; run `headgate install` again, or `helm upgrade`, or {role.remedy}"
    texts = [line for line in lines if line.startswith("permission missing: ") and line.endswith(ends)]
    resources = [one.partition("/") for one in rule.resources]
    names = [f"{one}.{rule.group}" if rule.group else one for one, *_ in resources]
    return [name for name in names if not any(re.search(rf"\b{verb}\b.*{name}", text) for text in texts)]


async def test_a_replica_that_starts_without_permissions_names_all_and_works_once_they_are_granted(
    start: Start,
) -> None:
    """Without the Lease no replica is active, so `headgate status` reviews the permissions itself."""
    assert len(start.log) == len(set(start.log))
    assert {line.split(":")[0] for line in start.log} == {"permission missing"}
    assert start.status.exit_code == 3, start.status.output
    shown = " ".join(start.status.output.split())
    assert (
        "permission missing: get, create, update leases.coordination.k8s.io in the namespace headgate-system" in shown
    )
    assert "run `headgate install` again, or `helm upgrade`, or add the verb to the Role headgate" in shown


async def test_each_missing_verb_is_named_once_with_its_consequence_and_remedy(
    cluster: KubeApiServer, plane: RunningReplica
) -> None:
    """A replica that can't renew the Lease ends, and without SubjectAccessReviews (create) no user may read the status.

    The other tests remove these verbs.
    """
    start = len(plane.log)
    verbs = [verb for verb in VERBS if verb != "create"]
    with without(cluster, *verbs, spared="leases") as changed:
        removed = [(role, rule, verb) for role, rule in changed for verb in rule.verbs if verb in verbs]
        await eventually(lambda: not any(unnamed(plane.log[start:], *change) for change in removed))
        problems = await eventually(plane.problems)
        assert not any(unnamed(problems, *change) for change in removed)
    await eventually(plane.has_all_permissions)
    lines = plane.log[start:]
    assert len(lines) == len(set(lines))
    granted = [line for line in lines if line.startswith("permission granted: ")]
    assert {verb for verb in verbs if any(re.search(rf"\b{verb}\b", line) for line in granted)} == {*verbs}
    assert {line.split(":")[0] for line in lines} == {"permission missing", "permission granted"}


async def test_each_granted_verb_is_used_and_each_used_verb_is_granted(
    cluster: KubeApiServer, plane: RunningReplica
) -> None:
    """The API server records the requests of a control plane that does all of its work."""
    needed = set(permissions_of(ROLES))
    wanted = needed - SELDOM_USED
    await _work(cluster, plane)
    await eventually(lambda: _used(cluster) >= wanted, of=lambda: sorted(map(str, wanted - _used(cluster))))
    assert _used(cluster) <= needed


def _used(cluster: KubeApiServer) -> frozenset[Permission]:
    """Return the permissions that the requests needed; those of the roles if they include them."""
    used = MissingPermissions(ROLES)
    for permission in cluster.audit_log.permissions():
        used.add(permission)
    return used.current.get()


def _collection(obj: Any) -> str:
    kind = find_written(obj["apiVersion"], obj["kind"])
    assert kind is not None
    return path_of(kind, obj["metadata"].get("namespace", ""))


def _conditions(cluster: KubeApiServer, path: str) -> dict[str, str]:
    """Return the status of each condition of an object by type."""
    conditions = (cluster.call("GET", path)[1].get("status") or {}).get("conditions", ())
    return {item["type"]: item["status"] for item in conditions}


async def _work(cluster: KubeApiServer, plane: RunningReplica) -> None:
    """Create objects of each kind, connect a proxy, read all metrics, and change and delete objects.

    The roots become immutable, so the control plane has to delete and create their ConfigMap.
    """
    for obj in yaml.safe_load_all(OBJECTS):
        made = cluster.make(_collection(obj), obj)
        if obj["kind"] == "Pod":
            ready = {"phase": "Running", "podIP": "10.1.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
            assert cluster.call("PUT", f"{SHOP}/pods/web-1/status", {**made, "status": ready})[0] == 200
    for plural in (kind.plural for kind in METRICS_KINDS):
        await eventually(lambda plural=plural: plane.get(f"/apis/traffic.metrics.k8s.io/v1beta1/{plural}"))
    config_map = f"{SHOP}/configmaps/headgate-roots"
    await eventually(lambda: cluster.call("GET", config_map)[0] == 200)
    roots = cluster.call("GET", config_map)[1]["data"]["roots.pem"]
    change = {"immutable": True, "data": {"roots.pem": "the root of another client"}}
    assert cluster.call("PATCH", config_map, change, content_type=MERGE)[0] == 200
    await eventually(lambda: cluster.call("GET", config_map)[1]["data"]["roots.pem"] == roots)
    address = f"127.0.0.1:{plane.ports['XDS_PORT']}"
    async with Proxy(address, "sidecar/shop/web-1", cluster.token("shop", "web-1"), roots=roots) as proxy:
        await proxy.request()
        await proxy.receive()
    canary = f"{SPLITS}/canary"
    for backend, resolved in (
        ("website", "False"),
        ("gone", "True"),
    ):  # the second Event about `gone` repeats the first
        await eventually(lambda resolved=resolved: _conditions(cluster, canary).get("ResolvedRefs") == resolved)
        found = cluster.call("GET", canary)[1]
        found["spec"]["backends"] = [{"service": backend, "weight": 1}]
        assert cluster.call("PUT", canary, found)[0] == 200
    await eventually(lambda: cluster.call("GET", f"{SPLITS}/first")[0] == 200)
    edited = cluster.call("GET", f"{SPLITS}/first")[1]
    wanted = edited["spec"]["backends"]
    edited["spec"]["backends"] = [*wanted, {"service": "gone", "weight": 1}]  # the Canary removes it
    assert cluster.call("PUT", f"{SPLITS}/first", edited)[0] == 200
    await eventually(lambda: cluster.call("GET", f"{SPLITS}/first")[1]["spec"]["backends"] == wanted)
    added = {"metadata": {"annotations": {"headgate.dev/sticky": "source"}}}  # the Canary removes it
    assert cluster.call("PATCH", f"{SPLITS}/first", added, content_type=MERGE)[0] == 200
    await eventually(
        lambda: "headgate.dev/sticky" not in cluster.call("GET", f"{SPLITS}/first")[1]["metadata"]["annotations"]
    )
    for path in (f"{SPLITS}/second", f"{SPLITS}/second-match", f"{GROUPS}/second-match"):
        await eventually(lambda path=path: cluster.call("GET", path)[0] == 200)
    await eventually(lambda: cluster.call("GET", f"{SHOP}/services/second")[0] == 200)
    found = cluster.call("GET", f"{CANARIES}/second")[1]
    found["spec"]["service"] = "first"  # the root belongs to an older Canary, so this one loses its objects
    assert cluster.call("PUT", f"{CANARIES}/second", found)[0] == 200
    for path in (f"{SPLITS}/second", f"{SPLITS}/second-match", f"{GROUPS}/second-match"):
        await eventually(lambda path=path: cluster.call("GET", path)[0] == 404)
    await eventually(lambda: _conditions(cluster, f"{GATEWAYS}/edge"))
    await _use_gateway(cluster, "asking")
    for path in (LEASE, f"{GATEWAYS}/edge"):
        assert cluster.call("DELETE", path)[0] == 200


async def _use_gateway(cluster: KubeApiServer, service: str) -> None:
    """Run a pod of the gateway of a Service, as Kubernetes does; then end the gateway."""
    name, pods = proxy_name("shop", service, of="service"), f"{SYSTEM}/pods"
    await eventually(lambda: cluster.call("GET", f"{DEPLOYMENTS}/{name}")[0] == 200)
    template = cluster.call("GET", f"{DEPLOYMENTS}/{name}")[1]["spec"]["template"]
    pod = {
        "metadata": {"name": name, **template["metadata"]},
        "spec": {"containers": [{"name": "proxy", "image": "x"}]},
    }
    made = cluster.make(pods, pod)
    ready = {"phase": "Running", "podIP": "10.1.0.2", "conditions": [{"type": "Ready", "status": "True"}]}
    assert cluster.call("PUT", f"{pods}/{name}/status", {**made, "status": ready})[0] == 200
    await eventually(lambda: cluster.call("GET", f"{SLICES}/{service}-headgate-gateway")[0] == 200)
    found = cluster.call("GET", f"{SHOP}/services/{service}")[1]
    del found["metadata"]["annotations"]
    assert cluster.call("PUT", f"{SHOP}/services/{service}", found)[0] == 200
    await eventually(lambda: cluster.call("GET", f"{DEPLOYMENTS}/{name}")[0] == 404)
    assert cluster.call("GET", f"{SLICES}/{service}-headgate-gateway")[0] == 404


async def test_the_rest_works_without_a_permission_and_all_works_once_it_is_granted(
    cluster: KubeApiServer, plane: RunningReplica
) -> None:
    """Without `patch`, a Gateway gets no proxy and a namespace no roots; statuses are still written."""
    cluster.namespace("pay")
    start = len(plane.log)
    with without(cluster, "patch") as changed:
        await named(plane, changed, "patch", since=start)
        for obj in yaml.safe_load_all(OBJECTS.replace("shop", "pay")):
            cluster.make(_collection(obj), obj)
        gateway, split = (one.replace("shop", "pay") for one in (f"{GATEWAYS}/edge", f"{SPLITS}/canary"))
        await eventually(lambda: _conditions(cluster, split) and _conditions(cluster, gateway))
        assert not _proxies(cluster, "pay")
        assert cluster.call("GET", "/api/v1/namespaces/pay/configmaps/headgate-roots")[0] == 404
    await eventually(lambda: cluster.call("GET", "/api/v1/namespaces/pay/configmaps/headgate-roots")[0] == 200)
    await eventually(lambda: len(_proxies(cluster, "pay")) == 1)
    await eventually(lambda: (cluster.call("GET", gateway)[1]["status"]).get("addresses"))


def _proxies(cluster: KubeApiServer, namespace: str) -> list[str]:
    """Return the Deployments of the Gateways of a namespace."""
    found = cluster.call("GET", DEPLOYMENTS)[1]["items"]
    return [item["metadata"]["name"] for item in found if f"gateway-{namespace}-" in item["metadata"]["name"]]


async def test_without_list_and_events_changes_still_have_effect(cluster: KubeApiServer, plane: RunningReplica) -> None:
    """The watches of a running replica continue, and objects get their statuses."""
    cluster.namespace("books")
    start = len(plane.log)
    with without(cluster, "list") as lists, without(cluster, "create", spared="leases") as creations:
        await named(plane, lists, "list", since=start)
        await named(plane, creations, "create", since=start)
        for obj in yaml.safe_load_all(OBJECTS.replace("shop", "books")):
            cluster.make(_collection(obj), obj)
        await eventually(lambda: _conditions(cluster, f"{SPLITS}/canary".replace("shop", "books")))
    await eventually(plane.has_all_permissions)
