"""Pods with a sidecar as workloads: ports, protocols and identities (R61 to R67, R70, D15)."""

import pytest
from tests.make.objects import backed_service, meshed_pod, port, service, split
from tests.make.values import compiled, findings, identities, workloads

from headgate.compiler.reasons import Reason
from headgate.model.mutual_tls import TlsMode
from headgate.model.routing import PortProtocol, PortRef, Protocol
from headgate.resources.core.pod_metadata import PROBES
from headgate.resources.inspect import Severity

WEB = ("web", "10.1.0.1")
WEB_IDENTITY = "spiffe://cluster.local/ns/default/sa/web"


def ports(result, name="web"):
    return {
        port.port: [port_protocol.protocol for port_protocol in port.protocols]
        for port in workloads(result)[name].ports
    }


def test_only_a_pod_with_a_sidecar_is_a_workload():
    result = compiled(meshed_pod("web", "10.1.0.1"), meshed_pod("bare", "10.1.0.2", mode=""), meshed_pod("soon", ""))
    assert list(workloads(result)) == ["web"]
    assert workloads(result)["web"].identity == WEB_IDENTITY


def test_a_completed_pod_is_not_a_workload():
    done = meshed_pod("done", "10.1.0.2") | {"status": {"podIP": "10.1.0.2", "phase": "Succeeded"}}
    assert workloads(compiled(done)) == {}


def test_a_pod_with_an_invalid_account_is_not_a_workload():
    assert workloads(compiled(meshed_pod("web", "10.1.0.1", account="A/B"))) == {}


def test_a_pod_can_not_have_the_identity_of_the_gateway():
    """R70. Otherwise a pod in the system namespace could act as any client of the gateway."""
    system = {"namespace": "headgate-system"}
    assert workloads(compiled(meshed_pod("web", "10.1.0.1", account="gateway", **system))) == {}
    assert list(workloads(compiled(meshed_pod("web", "10.1.0.1", account="other", **system)))) == ["web"]
    assert list(workloads(compiled(meshed_pod("web", "10.1.0.1", account="gateway")))) == ["web"]


def test_the_younger_of_two_pods_owns_a_shared_address():
    old = meshed_pod("old", "10.1.0.1", metadata={"creationTimestamp": "2026-01-01T00:00:00Z"})
    new = meshed_pod("new", "10.1.0.1", metadata={"creationTimestamp": "2026-01-02T00:00:00Z"})
    assert list(workloads(compiled(new, old))) == ["new"]


def test_plaintext_clients_use_the_protocol_of_the_oldest_service():
    """D15, R67."""
    result = compiled(
        meshed_pod(*WEB),
        *backed_service("young", WEB, app="http", metadata={"creationTimestamp": "2026-02-01T00:00:00Z"}),
        *backed_service("old", WEB, app="tcp", metadata={"creationTimestamp": "2026-01-01T00:00:00Z"}),
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
        meshed_pod(*WEB),
        *backed_service("silent", WEB, app="", metadata={"creationTimestamp": "2025-01-01T00:00:00Z"}),
        *backed_service("says", WEB, app="redis", metadata={"creationTimestamp": "2026-01-01T00:00:00Z"}),
    )
    assert ports(result) == {8080: [Protocol.TCP, Protocol.HTTP]}


def test_a_service_of_another_namespace_does_not_choose_the_protocol():
    """R69. Otherwise users of that namespace could choose which rules apply to the pod."""
    own = (meshed_pod(*WEB), *backed_service("web", WEB))
    foreign = [*backed_service("web", WEB, app="tcp", namespace="evil", of="default")]
    loose = [*backed_service("loose", ("", "10.1.0.1"), app="tcp", number=9090, namespace="evil")]
    result = compiled(*own, *foreign, *loose)
    assert workloads(result) == workloads(compiled(*own))


def test_an_endpoint_without_a_pod_reference_belongs_to_the_pod_with_its_address():
    result = compiled(meshed_pod(*WEB), *backed_service("web", ("", "10.1.0.1")))
    assert ports(result) == {8080: [Protocol.HTTP]}
    assert identities(result) == {("default/web:8080", "10.1.0.1"): WEB_IDENTITY}


@pytest.mark.parametrize("target_port", [8080, "main"])
def test_a_pod_that_is_being_deleted_keeps_the_ports_of_its_services(target_port):
    """Kubernetes 1.20 removes the pod from the EndpointSlices before all clients know it."""
    serving = {"name": "main", "ports": [{"name": "main", "containerPort": 8080}]}
    found = meshed_pod(*WEB, labels={"app": "web"}, containers=[serving])
    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert ports(
        compiled(found, service("web", port(80, app="http", target=target_port), selector={"app": "web"}))
    ) == {8080: [Protocol.HTTP]}


@pytest.mark.parametrize(
    ("sidecar", "is_workload"), [({"running": {}}, True), ({"terminated": {}}, False), ({"waiting": {}}, False)]
)
@pytest.mark.parametrize("native", [False, True])
def test_a_deleted_pod_whose_containers_have_ended_is_no_workload(sidecar, is_workload, native):
    """Before Kubernetes 1.27 its phase stays `Running`, and its sidecar will not connect again.

    A native sidecar ends after the application, and reports its last requests before.
    """
    found, field = meshed_pod(*WEB), "initContainerStatuses" if native else "containerStatuses"
    found["status"]["containerStatuses"] = [{"name": "web", "state": {"terminated": {}}}]
    found["status"].setdefault(field, []).append({"name": "proxy", "state": sidecar})
    assert "web" in workloads(compiled(found))  # without a deletion, ended containers are started again
    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert ("web" in workloads(compiled(found))) is is_workload


@pytest.mark.parametrize("tls_mode", TlsMode)
def test_clients_use_mtls_in_permissive_and_strict_mode(tls_mode):
    result = compiled(meshed_pod(*WEB), *backed_service("web", WEB), tls_modes={"default/web": tls_mode})
    assert workloads(result)["web"].tls_mode is tls_mode
    assert workloads(result)["web"].target_tls_mode is TlsMode.PERMISSIVE
    assert identities(result) == {("default/web:8080", "10.1.0.1"): WEB_IDENTITY if tls_mode.clients_use_tls else ""}


def test_an_excluded_port_is_called_in_plaintext():
    annotations = {"headgate.dev/excluded-inbound-ports": "9102"}
    result = compiled(
        meshed_pod(*WEB, annotations=annotations),
        *backed_service("web", WEB),
        *backed_service("scrape", WEB, number=9102),
    )
    assert ports(result) == {8080: [Protocol.HTTP]}
    assert identities(result)["default/scrape:9102", "10.1.0.1"] == ""


@pytest.mark.parametrize("written", ["", "8080=20417,9090=20417", "8080=20417,9090=8080", "8080=20417,9090=9090"])
def test_an_explicit_sidecar_has_only_ports_with_a_known_application_port(written):
    found = meshed_pod("web", "127.80.0.1", mode="explicit", annotations={"headgate.dev/application-ports": written})
    services = [
        *backed_service("web", ("web", "127.80.0.1")),
        *backed_service("admin", ("web", "127.80.0.1"), number=9090),
    ]
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
    result = compiled(
        meshed_pod(*WEB, containers=[{"name": "c", "ports": declared}]), *backed_service("web", WEB, number=8081)
    )
    assert ports(result) == {
        7: [Protocol.TCP],
        3306: [Protocol.TCP_SERVER_FIRST],
        8080: [Protocol.HTTP],
        8081: [Protocol.HTTP],
    }


def test_an_undeclared_backend_uses_the_protocol_of_its_root():
    """Clients of the root use this protocol, so the server's sidecar must use it too."""
    shares = split("db", {"db-v1": 1})
    result = compiled(
        meshed_pod(*WEB), *backed_service("db", app="mysql"), *backed_service("db-v1", WEB, app=""), shares
    )
    assert ports(result) == {8080: [Protocol.TCP_SERVER_FIRST]}


def test_every_identity_starts_with_the_trust_domain():
    result = compiled(meshed_pod(*WEB), trust_domain="example.org")
    assert result.mesh.trust_domain == "example.org"
    assert workloads(result)["web"].identity == "spiffe://example.org/ns/default/sa/web"


@pytest.mark.parametrize(("outbound", "passthrough"), [("allow", True), ("refuse", False)])
def test_the_outbound_setting_allows_or_refuses_connections_to_unknown_addresses(outbound, passthrough):
    assert compiled(outbound=outbound).mesh.passthrough is passthrough


def test_an_invalid_pod_keeps_its_sidecar_and_loses_its_excluded_ports():
    """R74. Without a sidecar, callers would send plaintext."""
    wrong = {"headgate.dev/excluded-inbound-ports": "8080, everything"}
    result = compiled(meshed_pod(*WEB, annotations=wrong), *backed_service("web", WEB))
    assert ports(result) == {8080: [Protocol.HTTP]}
    assert set(identities(result).values()) == {WEB_IDENTITY}
    (reported,) = findings(result, Reason.INVALID)
    assert reported.message.endswith("; until it is corrected, its sidecar has no excluded ports")


@pytest.mark.parametrize("text", ["[", '{"a": {"b": ' + "[" * 100_000])
def test_a_pod_whose_annotation_has_no_probes_keeps_its_sidecar(text):
    result = compiled(meshed_pod(*WEB, annotations={PROBES: text}), *backed_service("web", WEB))
    assert workloads(result).keys() == {"web"}
