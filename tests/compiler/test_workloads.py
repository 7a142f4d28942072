"""Pods with a sidecar as workloads: their ports, what is spoken there, and how they are called (R61 to R67, R70, D15)."""

import pytest
from tests.compiler.pods import compiled, findings, identities, obj, pod, service, workloads

from headgate.compiler.reasons import Reason, Severity
from headgate.model.routing import PortProtocol, PortRef, Protocol, TlsMode

WEB = ("web", "10.1.0.1")
WHO = "spiffe://cluster.local/ns/default/sa/web"


def ports(result, name="web"):
    return {port.port: [spoken.protocol for spoken in port.protocols] for port in workloads(result)[name].ports}


def test_only_a_pod_with_a_sidecar_is_a_workload():
    result = compiled(pod("web", "10.1.0.1"), pod("bare", "10.1.0.2", sidecar=""), pod("soon", ""))
    assert list(workloads(result)) == ["web"]
    assert workloads(result)["web"].identity == WHO


def test_a_pod_that_has_ended_is_none():
    done = pod("done", "10.1.0.2") | {"status": {"podIP": "10.1.0.2", "phase": "Succeeded"}}
    assert workloads(compiled(done)) == {}


def test_an_account_that_no_identity_can_name_is_none():
    assert workloads(compiled(pod("web", "10.1.0.1", account="A/B"))) == {}


def test_the_gateways_identity_is_no_pods():
    """R70: whoever may make pods in the system's namespace is not everybody who comes through the gateway."""
    system = {"namespace": "headgate-system"}
    assert workloads(compiled(pod("web", "10.1.0.1", account="gateway", **system))) == {}
    assert list(workloads(compiled(pod("web", "10.1.0.1", account="other", **system)))) == ["web"]
    assert list(workloads(compiled(pod("web", "10.1.0.1", account="gateway")))) == ["web"]


def test_of_two_pods_with_one_address_the_younger_has_it():
    old = pod("old", "10.1.0.1", created="2026-01-01T00:00:00Z")
    new = pod("new", "10.1.0.1", created="2026-01-02T00:00:00Z")
    assert list(workloads(compiled(new, old))) == ["new"]


def test_the_oldest_service_decides_for_who_does_not_say_which_he_means():
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
    (told,) = findings(result, Reason.PROTOCOL_CONFLICT)
    assert told.about.name == "young"
    assert told.reason.severity is Severity.WARNING
    assert "port 8080 is http, but port 8080 of the older Service default/old is tcp" in told.message
    assert "the pods' sidecars treat plaintext as tcp" in told.message


def test_a_service_that_says_nothing_decides_last():
    result = compiled(
        pod(*WEB),
        *service("silent", WEB, app="", created="2025-01-01T00:00:00Z"),
        *service("says", WEB, app="redis", created="2026-01-01T00:00:00Z"),
    )
    assert ports(result) == {8080: [Protocol.TCP, Protocol.HTTP]}


def test_a_service_of_another_namespace_decides_nothing():
    """Else whoever may write there could choose which rules hold for the pod (R69)."""
    own = (pod(*WEB), *service("web", WEB))
    foreign = [*service("web", WEB, app="tcp", namespace="evil", of="default")]
    loose = [*service("loose", ("", "10.1.0.1"), app="tcp", port=9090, namespace="evil")]
    result = compiled(*own, *foreign, *loose)
    assert workloads(result) == workloads(compiled(*own))


def test_a_slice_that_names_no_pod_is_for_who_has_the_address():
    result = compiled(pod(*WEB), *service("web", ("", "10.1.0.1")))
    assert ports(result) == {8080: [Protocol.HTTP]}
    assert identities(result) == {("default/web:8080", "10.1.0.1"): WHO}


@pytest.mark.parametrize("tls_mode", TlsMode)
def test_callers_use_tls_as_soon_as_the_workload_is_ready_for_it(tls_mode):
    result = compiled(pod(*WEB), *service("web", WEB), tls_modes={"default/web": tls_mode})
    assert workloads(result)["web"].tls_mode is tls_mode
    assert workloads(result)["web"].target_tls_mode is TlsMode.PERMISSIVE
    assert identities(result) == {("default/web:8080", "10.1.0.1"): WHO if tls_mode.clients_use_tls else ""}


def test_a_port_that_the_sidecar_leaves_alone_is_called_in_plaintext():
    annotations = {"headgate.dev/excluded-inbound-ports": "9102"}
    result = compiled(pod(*WEB, annotations=annotations), *service("web", WEB), *service("scrape", WEB, port=9102))
    assert ports(result) == {8080: [Protocol.HTTP]}
    assert identities(result)["default/scrape:9102", "10.1.0.1"] == ""


@pytest.mark.parametrize("written", ["", "8080=20417,9090=20417", "8080=20417,9090=8080", "8080=20417,9090=9090"])
def test_an_explicit_sidecar_has_only_ports_whose_process_is_known_and_alone_there(written):
    found = pod("web", "127.80.0.1", sidecar="explicit", annotations={"headgate.dev/application-ports": written})
    services = [*service("web", ("web", "127.80.0.1")), *service("admin", ("web", "127.80.0.1"), port=9090)]
    result = compiled(found, *services)
    known = {port.port: port.application for port in workloads(result)["web"].ports}
    assert known == ({8080: 20417} if written else {})


def test_names_of_container_ports_say_what_is_spoken_where_no_service_does():
    """R62; without a word nobody knows, and bytes are passed on."""
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


def test_a_backend_that_says_nothing_speaks_what_the_root_of_its_split_says():
    """Clients of the root call it so; the server must read it so."""
    split = obj("TrafficSplit", "db", spec={"service": "db", "backends": [{"service": "db-v1", "weight": 1}]})
    result = compiled(pod(*WEB), *service("db", app="mysql"), *service("db-v1", WEB, app=""), split)
    assert ports(result) == {8080: [Protocol.TCP_SERVER_FIRST]}


def test_the_trust_domain_begins_every_identity():
    result = compiled(pod(*WEB), trust_domain="example.org")
    assert result.mesh.trust_domain == "example.org"
    assert workloads(result)["web"].identity == "spiffe://example.org/ns/default/sa/web"


@pytest.mark.parametrize(("outbound", "passthrough"), [("allow", True), ("refuse", False)])
def test_what_is_no_service_is_passed_on_if_the_setting_says_so(outbound, passthrough):
    assert compiled(outbound=outbound).mesh.passthrough is passthrough


def test_a_pod_with_mistakes_keeps_its_sidecar_and_no_exceptions():
    """Without it, callers would send plaintext (R74)."""
    wrong = {"headgate.dev/excluded-inbound-ports": "8080, everything"}
    result = compiled(pod(*WEB, annotations=wrong), *service("web", WEB))
    assert ports(result) == {8080: [Protocol.HTTP]}
    assert set(identities(result).values()) == {WHO}
    (told,) = findings(result, Reason.INVALID)
    assert told.message.endswith("; until it is corrected, its sidecar has no excluded ports")
