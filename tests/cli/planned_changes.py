"""For each kind that headgate registers: the objects of a mesh, and a creation, a change and a deletion in it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.make import objects

from headgate.resources.meta import Object


class PlannedChange(NamedTuple):
    """An object that is created, changed and deleted in a mesh with the objects `base`.

    `effects` says for each of these steps whether it changes requests or access. `on_new_pods` means that pods get the
    change when they are created again.
    """

    base: tuple[Object, ...]
    new: Object
    changed: Object
    effects: tuple[bool, bool, bool] = (True, True, True)
    on_new_pods: bool = False


def workload(name: str, *ports: int, **more: Any) -> Object:
    """Return a Deployment with one pod, which listens on port 8080 and has a ServiceAccount of its own."""
    container = objects.container("app", *(ports or (8080,)))
    return objects.deployment(name, container, template={"account": name, "labels": {"app": name}}, **more)


def workload_service(name: str, app: str = "", protocol: str = "", number: int = 8080, **more: Any) -> Object:
    """Return a Service of the pods of a workload; `protocol` is the appProtocol of its port."""
    port = objects.port(number, "p8080", app=protocol, target=8080)
    return objects.service(name, port, selector={"app": app or name}, **more)


def services(protocol: str = "") -> tuple[Object, ...]:
    return (
        workload_service("website", "v1", protocol),
        workload_service("v1", "", protocol),
        workload_service("v2", "", protocol),
    )


PODS = tuple(workload(name) for name in ("v1", "v2", "client"))
MESH = (*PODS, *services())
NONE = (False, False, False)
PARENT = objects.service_parent("website", 8080)
GATEWAY = objects.gateway("shop")
GATEWAY_API = "gateway.networking.k8s.io"


def website_split(v1: int, v2: int, **more: Any) -> Object:
    return objects.split("website", {"v1": v1, "v2": v2}, **more)


def website_route(kind: str, v1: int, v2: int) -> Object:
    return objects.route("website", objects.rule({"v1": v1, "v2": v2}), parents=[PARENT], kind=kind)


def tls_route(v1: int, v2: int) -> Object:
    return objects.route(
        "website",
        objects.rule({"v1": v1, "v2": v2}),
        parents=[{"name": "shop"}],
        kind="TLSRoute",
        hostnames=["shop.example.com"],
    )


def udp_route(v1: int, v2: int) -> Object:
    rule = objects.rule({"v1": v1, "v2": v2}, port=53)
    return objects.route("website", rule, parents=[{"name": "shop"}], kind="UDPRoute")


def dns_services() -> tuple[Object, ...]:
    port = {"name": "dns", "port": 53, "targetPort": 8080, "protocol": "UDP"}
    return tuple(objects.service(name, port, selector={"app": name}) for name in ("v1", "v2"))


def to_gateway(backend: str, **more: Any) -> Object:
    return objects.route("shop", objects.rule({backend: 1}), parents=[{"name": "shop"}], **more)


def read(path: str) -> Object:
    return objects.http_route_group("read", {"get": {"methods": ["GET"], "pathRegex": path}})


def target(*sources: str, rule: Object) -> Object:
    return objects.traffic_target("client", "v1", sources, [rule])


def metrics_sidecar(port: int) -> Object:
    return objects.sidecar("metrics", {"app": "v1"}, containers=[objects.container("metrics", port, image="metrics")])


def single_pod(label: str) -> Object:
    container = objects.container("app", 8080, image="app")
    return objects.pod("alone", account="alone", containers=[container], labels={"app": label})


def replica_set(replicas: int) -> Object:
    template = objects.pod_template(
        objects.container("app", 8080, image="app"), labels={"app": "alone"}, account="alone"
    )
    selector = {"matchLabels": {"app": "alone"}}
    return objects.obj("ReplicaSet", "alone", spec={"replicas": replicas, "selector": selector, "template": template})


def gateway_class(controller: str) -> Object:
    return objects.obj("GatewayClass", "own", namespace="", spec={"controllerName": controller})


def mesh(description: str) -> Object:
    spec = {"controllerName": "headgate.dev/mesh-controller", "description": description}
    return objects.obj("XMesh", "headgate", namespace="", spec=spec)


def shop_grant(namespace: str) -> Object:
    return objects.grant("shop", (GATEWAY_API, "HTTPRoute", namespace), ("", "Service"), namespace="shop")


def shop(**labels: str) -> tuple[Object, ...]:
    """Return a namespace with a workload and a Service."""
    return (
        objects.namespace("shop", labels=labels),
        workload("web", namespace="shop"),
        workload_service("web", namespace="shop"),
    )


TO_SHOP = objects.route(
    "website", {"backendRefs": [objects.backend_ref("web", 8080, namespace="shop")]}, parents=[PARENT]
)
SECURE = objects.gateway(
    "shop", objects.listener(443, "https", protocol="HTTPS", tls={"certificateRefs": [{"name": "shop"}]})
)


OPEN = objects.gateway("shop", allowedListeners={"namespaces": {"from": "Same"}})


def listener_set(port: int) -> Object:
    spec = {"parentRef": {"name": "shop"}, "listeners": [objects.listener(port)]}
    return objects.obj("ListenerSet", "team", version="gateway.networking.k8s.io/v1", spec=spec)


def to_listener_set() -> Object:
    parents = [{"kind": "ListenerSet", "name": "team"}]
    return objects.route("website", objects.rule({"v1": 1}), parents=parents)


def backend_tls(service: str) -> Object:
    validation = {"hostname": "a.example", "wellKnownCACertificates": "System"}
    spec = {"targetRefs": [{"group": "", "kind": "Service", "name": service}], "validation": validation}
    return objects.obj("BackendTLSPolicy", "shop", version=f"{GATEWAY_API}/v1", spec=spec)


def policy_for(account: str) -> Object:
    return objects.authorization_policy("v1", {"app": "v1"}, objects.caller_rule(account))


DATAGRAMS = objects.gateway("shop", objects.listener(53, "dns", protocol="UDP"))
PASSING = objects.gateway("shop", objects.listener(443, "tls", protocol="TLS", tls={"mode": "Passthrough"}))


def secret(chain: str, key: str) -> Object:
    return objects.obj("Secret", "shop", type="kubernetes.io/tls", stringData={"tls.crt": chain, "tls.key": key})


def plain(kind: str, **more: Any) -> tuple[Object, Object]:
    """Return an object that changes neither requests nor access, and a changed one."""
    written = {"name": "new", **more}
    return objects.obj(kind, **written), objects.obj(kind, labels={"a": "b"}, **written)


def changes(certificates: tuple[tuple[str, str], tuple[str, str]]) -> Mapping[str, PlannedChange]:
    """Return a change for each kind, by apiVersion and kind, and some more. `certificates` are two chains with their keys."""
    return of_kubernetes(certificates) | OF_THE_GATEWAY_API | OF_THE_MESH


def of_kubernetes(certificates: tuple[tuple[str, str], tuple[str, str]]) -> dict[str, PlannedChange]:
    event = {"involvedObject": {"kind": "Pod", "namespace": "default", "name": "a"}, "type": "Normal", "reason": "A"}
    outside, elsewhere = (
        objects.endpoint_slice("outside", [address], {"p8080": 8080}) for address in ("127.9.9.1", "127.9.9.2")
    )
    return {
        "v1 Namespace": PlannedChange(
            MESH, objects.namespace("shop"), objects.namespace("shop", labels={"team": "a"}), NONE
        ),
        "v1 Namespace with pods": PlannedChange(
            (*MESH, *shop()),
            objects.namespace("shop"),
            objects.namespace("shop", labels={"team": "a"}),
            (False, False, True),
        ),
        "v1 Node": PlannedChange(MESH, *plain("Node", name="local", namespace=""), NONE),
        "v1 Service": PlannedChange(MESH, workload_service("new", "v1"), workload_service("new", "v1", number=8081)),
        "v1 Service with a gateway": PlannedChange(
            MESH,
            workload_service("new", "v1", annotations=objects.headgate_keys(gateway="nginx")),
            workload_service("new", "v1", annotations=objects.headgate_keys(gateway="envoy")),
        ),
        "v1 Pod": PlannedChange((*MESH, workload_service("alone")), single_pod("alone"), single_pod("v2")),
        "v1 ServiceAccount": PlannedChange(MESH, *plain("ServiceAccount"), NONE),
        "v1 Secret": PlannedChange(
            (*MESH, SECURE, to_gateway("v1")), secret(*certificates[0]), secret(*certificates[1]), (True, False, True)
        ),
        "v1 ConfigMap": PlannedChange(MESH, *plain("ConfigMap", data={"a": "b"}), NONE),
        "v1 Event": PlannedChange(MESH, *plain("Event", **event), NONE),
        "apps/v1 Deployment": PlannedChange(
            (*MESH, workload_service("new")), workload("new"), workload("new", 8080, 9090)
        ),
        "apps/v1 ReplicaSet": PlannedChange(
            (*MESH, workload_service("alone")), replica_set(1), replica_set(0), (True, True, False)
        ),
        "discovery.k8s.io/v1 EndpointSlice": PlannedChange(
            (*MESH, objects.service("outside", 8080)), outside, elsewhere, (True, False, True)
        ),
    }


OF_THE_GATEWAY_API = {
    "gateway.networking.k8s.io/v1 GatewayClass": PlannedChange(
        (*MESH, objects.gateway("shop", class_name="own"), to_gateway("v1")),
        gateway_class("headgate.dev/gateway-controller"),
        gateway_class("example.com/other"),
        (True, True, False),
    ),
    "gateway.networking.k8s.io/v1 Gateway": PlannedChange(
        (*MESH, to_gateway("v1")), objects.gateway("shop"), objects.gateway("shop", objects.listener(81))
    ),
    "gateway.networking.k8s.io/v1 ListenerSet": PlannedChange(
        (*MESH, OPEN, to_listener_set()), listener_set(81), listener_set(82)
    ),
    "gateway.networking.k8s.io/v1 HTTPRoute": PlannedChange(
        MESH, website_route("HTTPRoute", 1, 1), website_route("HTTPRoute", 1, 3)
    ),
    "gateway.networking.k8s.io/v1 GRPCRoute": PlannedChange(
        (*PODS, *services("kubernetes.io/h2c")), website_route("GRPCRoute", 1, 1), website_route("GRPCRoute", 1, 3)
    ),
    "gateway.networking.k8s.io/v1 TCPRoute": PlannedChange(
        (*PODS, *services("tcp")), website_route("TCPRoute", 1, 1), website_route("TCPRoute", 1, 3)
    ),
    "gateway.networking.k8s.io/v1 TLSRoute": PlannedChange(
        (*PODS, *services("tls"), PASSING), tls_route(1, 1), tls_route(1, 3)
    ),
    "gateway.networking.k8s.io/v1 UDPRoute": PlannedChange(
        (*PODS, *dns_services(), DATAGRAMS), udp_route(1, 1), udp_route(1, 3)
    ),
    "gateway.networking.k8s.io/v1 BackendTLSPolicy": PlannedChange(
        (*MESH, GATEWAY, to_gateway("v1")), backend_tls("v1"), backend_tls("v2"), (True, True, False)
    ),
    "gateway.networking.x-k8s.io/v1alpha1 XMesh": PlannedChange(MESH, mesh(""), mesh("of the shop"), NONE),
    "gateway.networking.x-k8s.io/v1alpha1 XBackend": PlannedChange(
        (
            *MESH,
            GATEWAY,
            objects.route("out", {"backendRefs": [objects.external_ref("api")]}, parents=[{"name": "shop"}]),
        ),
        objects.external_backend("api", "a.example.com"),
        objects.external_backend("api", "b.example.com"),
    ),
    "gateway.networking.x-k8s.io/v1alpha1 XBackendTrafficPolicy": PlannedChange(
        MESH,
        objects.traffic_policy("limit", "website", retryConstraint={"budget": {"percent": 10}}),
        objects.traffic_policy("limit", "website", retryConstraint={"budget": {"percent": 30}}),
    ),
    "gateway.networking.x-k8s.io/v1alpha1 XAuthorizationPolicy": PlannedChange(
        MESH, policy_for("client"), policy_for("v2")
    ),
    "gateway.networking.k8s.io/v1 ReferenceGrant": PlannedChange(
        (*MESH, *shop(), TO_SHOP), shop_grant("default"), shop_grant("other"), (True, True, False)
    ),
}
CANARY, OTHER_CANARY = (objects.canary("website", {"v1": weight, "v2": 100 - weight}) for weight in (90, 40))
OF_THE_MESH = {
    "split.smi-spec.io/v1alpha4 TrafficSplit": PlannedChange(MESH, website_split(1, 1), website_split(1, 3)),
    "specs.smi-spec.io/v1alpha4 HTTPRouteGroup": PlannedChange(
        (*MESH, website_split(0, 1, matches=["read"])), read("/"), read("/items")
    ),
    "specs.smi-spec.io/v1alpha4 TCPRoute": PlannedChange(
        (*PODS, *services("tcp"), target("client", rule=objects.tcp_rule("ports"))),
        objects.smi_tcp_route("ports", 8080),
        objects.smi_tcp_route("ports", 9090),
        (True, True, False),
    ),
    "specs.smi-spec.io/v1alpha4 UDPRoute": PlannedChange(
        MESH, *plain("UDPRoute", spec={"matches": {"ports": [53]}}), NONE
    ),
    "access.smi-spec.io/v1alpha3 TrafficTarget": PlannedChange(
        (*MESH, read("/")),
        target("client", rule=objects.http_rule("read")),
        target("v2", rule=objects.http_rule("read")),
    ),
    "headgate.dev/v1beta1 TLSConfig": PlannedChange(
        MESH, objects.tls_config("strict", {"app": "v1"}), objects.tls_config("strict", {"app": "v2"})
    ),
    "headgate.dev/v1beta1 Sidecar": PlannedChange(MESH, metrics_sidecar(9102), metrics_sidecar(9103), on_new_pods=True),
    "headgate.dev/v1beta1 Canary": PlannedChange(MESH, CANARY, OTHER_CANARY),
    "headgate.dev/v1beta1 Canary that makes its root": PlannedChange((*PODS, *services()[1:]), CANARY, OTHER_CANARY),
}
