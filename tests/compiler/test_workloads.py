"""Pods with a sidecar as workloads: ports, protocols and identities (R61 to R67, R70, D15)."""

import pytest
from tests.compiler.pods import compiled, findings, identities, obj, pod, service, workloads

from headgate.compiler.reasons import Reason, Severity
from headgate.model.routing import PortProtocol, PortRef, Protocol, TlsMode

WEB = ("web", "10.1.0.1")
WEB_IDENTITY = "spiffe://cluster.local/ns/default/sa/web"


def ports(result, name="web"):
    return {port.port: [spoken.protocol for spoken in port.protocols] for port in workloads(result)[name].ports}


def test_only_a_pod_with_a_sidecar_is_a_workload():
    result = compiled(pod("web", "10.1.0.1"), pod("bare", "10.1.0.2", sidecar=""), pod("soon", ""))
    assert list(workloads(result)) == ["web"]
    assert workloads(result)["web"].identity == WEB_IDENTITY


def test_a_completed_pod_is_not_a_workload():
    done = pod("done", "10.1.0.2") | {"status": {"podIP": "10.1.0.2", "phase": "Succeeded"}}
    assert workloads(compiled(done)) == {}


def test_a_pod_with_an_invalid_account_is_not_a_workload():
    assert workloads(compiled(pod("web", "10.1.0.1", account="A/B"))) == {}


def test_a_pod_can_not_have_the_identity_of_the_gateway():
    """R70. Otherwise a pod in the system namespace could act as any client of the gateway."""
    system = {"namespace": "headgate-system"}
    assert workloads(compiled(pod("web", "10.1.0.1", account="gateway", **system))) == {}
    assert list(workloads(compiled(pod("web", "10.1.0.1", account="other", **system)))) == ["web"]
    assert list(workloads(compiled(pod("web", "10.1.0.1", account="gateway")))) == ["web"]


def test_the_younger_of_two_pods_owns_a_shared_address():
    old = pod("old", "10.1.0.1", created="2026-01-01T00:00:00Z")
    new = pod("new", "10.1.0.1", created="2026-01-02T00:00:00Z")
    assert list(workloads(compiled(new, old))) == ["new"]


def test_plaintext_clients_use_the_protocol_of_the_oldest_service():
    """D15, R67."""
    result = compiled(
        pod(*WEB),
        *service("young", WEB, app="http", created="2026-02-01T00:00:00Z"),
        *service("old", WEB, app="tcp", created="2026-01-01T00:00:00Z"),
    )
    (port,) = workloads(result)["web"].ports
    assert port.protocols == (
        PortProtocol(protocol=Protocol.TCP, services=(PortRef("default/old", 8080),)),
        PortProtocol(protocol=Protocol.HTTP, services=(PortRef("default/young", 8080),)),
    )
    (reported,) = findings(result, Reason.PROTOCOL_CONFLICT)
    assert reported.about.name == "young"
    assert reported.reason.severity is Severity.WARNING
    assert "port 8080 is http, but port 8080 of the older Service default/old is tcp" in reported.message
    assert "the pods' sidecars treat plaintext as tcp" in reported.message


def test_a_declared_protocol_wins_over_an_older_service_without_one():
    result = compiled(
        pod(*WEB),
        *service("silent", WEB, app="", created="2025-01-01T00:00:00Z"),
        *service("says", WEB, app="redis", created="2026-01-01T00:00:00Z"),
    )
    assert ports(result) == {8080: [Protocol.TCP, Protocol.HTTP]}


def test_a_service_of_another_namespace_does_not_choose_the_protocol():
    """R69. Otherwise users of that namespace could choose which rules apply to the pod."""
    own = (pod(*WEB), *service("web", WEB))
    foreign = [*service("web", WEB, app="tcp", namespace="evil", of="default")]
    loose = [*service("loose", ("", "10.1.0.1"), app="tcp", port=9090, namespace="evil")]
    result = compiled(*own, *foreign, *loose)
    assert workloads(result) == workloads(compiled(*own))


def test_an_endpoint_without_a_pod_reference_belongs_to_the_pod_with_its_address():
    result = compiled(pod(*WEB), *service("web", ("", "10.1.0.1")))
    assert ports(result) == {8080: [Protocol.HTTP]}
    assert identities(result) == {("default/web:8080", "10.1.0.1"): WEB_IDENTITY}


@pytest.mark.parametrize("target_port", [8080, "main"])
def test_a_pod_that_is_being_deleted_keeps_the_ports_of_its_services(target_port):
    """Kubernetes 1.20 removes the pod from the EndpointSlices before all clients know it."""
    serving = {"name": "main", "ports": [{"name": "main", "containerPort": 8080}]}
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80, "appProtocol": "http", "targetPort": target_port}]}
    found = pod(*WEB, labels={"app": "web"}, containers=[serving])
    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert ports(compiled(found, obj("Service", "web", spec=spec))) == {8080: [Protocol.HTTP]}


@pytest.mark.parametrize(
    ("sidecar", "is_workload"), [({"running": {}}, True), ({"terminated": {}}, False), ({"waiting": {}}, False)]
)
@pytest.mark.parametrize("native", [False, True])
def test_a_deleted_pod_whose_containers_have_ended_is_no_workload(sidecar, is_workload, native):
    """Before Kubernetes 1.27 its phase stays `Running`, and its sidecar will not connect again.

    A native sidecar ends after the application, and reports its last requests before.
    """
    found, field = pod(*WEB), "initContainerStatuses" if native else "containerStatuses"
    found["status"]["containerStatuses"] = [{"name": "web", "state": {"terminated": {}}}]
    found["status"].setdefault(field, []).append({"name": "proxy", "state": sidecar})
    assert "web" in workloads(compiled(found))  # without a deletion, ended containers are started again
    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert ("web" in workloads(compiled(found))) is is_workload


@pytest.mark.parametrize("tls_mode", TlsMode)
def test_clients_use_mtls_in_permissive_and_strict_mode(tls_mode):
    result = compiled(pod(*WEB), *service("web", WEB), tls_modes={"default/web": tls_mode})
    assert workloads(result)["web"].tls_mode is tls_mode
    assert workloads(result)["web"].target_tls_mode is TlsMode.PERMISSIVE
    assert identities(result) == {("default/web:8080", "10.1.0.1"): WEB_IDENTITY if tls_mode.clients_use_tls else ""}


def test_an_excluded_port_is_called_in_plaintext():
    annotations = {"headgate.dev/excluded-inbound-ports": "9102"}
    result = compiled(pod(*WEB, annotations=annotations), *service("web", WEB), *service("scrape", WEB, port=9102))
    assert ports(result) == {8080: [Protocol.HTTP]}
    assert identities(result)["default/scrape:9102", "10.1.0.1"] == ""


@pytest.mark.parametrize("written", ["", "8080=20417,9090=20417", "8080=20417,9090=8080", "8080=20417,9090=9090"])
def test_an_explicit_sidecar_has_only_ports_with_a_known_application_port(written):
    found = pod("web", "127.80.0.1", sidecar="explicit", annotations={"headgate.dev/application-ports": written})
    services = [*service("web", ("web", "127.80.0.1")), *service("admin", ("web", "127.80.0.1"), port=9090)]
    result = compiled(found, *services)
    known = {port.port: port.application for port in workloads(result)["web"].ports}
    assert known == ({8080: 20417} if written else {})


def test_the_name_of_a_container_port_declares_a_protocol_without_a_service():
    """R62. If the name is no known protocol, the protocol is TCP."""
    declared = [
        {"containerPort": 8080, "name": "http-x"},
        {"containerPort": 3306, "name": "mysql"},
        {"containerPort": 7, "name": "echo"},
        {"containerPort": 8081, "name": "tcp-x"},
        {"containerPort": 53, "name": "dns", "protocol": "UDP"},
    ]
    result = compiled(pod(*WEB, containers=[{"name": "c", "ports": declared}]), *service("web", WEB, port=8081))
    assert ports(result) == {
        7: [Protocol.TCP],
        3306: [Protocol.TCP_SERVER_FIRST],
        8080: [Protocol.HTTP],
        8081: [Protocol.HTTP],
    }


def test_an_undeclared_backend_uses_the_protocol_of_its_root():
    """Clients of the root use this protocol, so the server's sidecar must use it too."""
    split = obj("TrafficSplit", "db", spec={"service": "db", "backends": [{"service": "db-v1", "weight": 1}]})
    result = compiled(pod(*WEB), *service("db", app="mysql"), *service("db-v1", WEB, app=""), split)
    assert ports(result) == {8080: [Protocol.TCP_SERVER_FIRST]}


def test_every_identity_starts_with_the_trust_domain():
    result = compiled(pod(*WEB), trust_domain="example.org")
    assert result.mesh.trust_domain == "example.org"
    assert workloads(result)["web"].identity == "spiffe://example.org/ns/default/sa/web"


@pytest.mark.parametrize(("outbound", "passthrough"), [("allow", True), ("refuse", False)])
def test_the_outbound_setting_allows_or_refuses_connections_to_unknown_addresses(outbound, passthrough):
    assert compiled(outbound=outbound).mesh.passthrough is passthrough


def test_an_invalid_pod_keeps_its_sidecar_and_loses_its_excluded_ports():
    """R74. Without a sidecar, callers would send plaintext."""
    wrong = {"headgate.dev/excluded-inbound-ports": "8080, everything"}
    result = compiled(pod(*WEB, annotations=wrong), *service("web", WEB))
    assert ports(result) == {8080: [Protocol.HTTP]}
    assert set(identities(result).values()) == {WEB_IDENTITY}
    (reported,) = findings(result, Reason.INVALID)
    assert reported.message.endswith("; until it is corrected, its sidecar has no excluded ports")
