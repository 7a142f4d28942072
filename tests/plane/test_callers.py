"""The names of callers whose requests only the server's proxy counted (R96)."""

import pytest

from headgate.compiler.report import Compiled, Report
from headgate.latest import Latest
from headgate.model.mutual_tls import TlsMode
from headgate.model.routing import Endpoint, Endpoints, Mesh, PortRef, Workload
from headgate.plane.callers import CallerFinder
from headgate.telemetry.counters.flows import GATEWAY, Peer

WEB = "sidecar/default/web-0"
SHARED = "spiffe://a/ns/default/sa/web"


def callers(tls_mode=TlsMode.PERMISSIVE, capture="transparent", gateways=()):
    def workload(name, address, identity=""):
        return Workload(
            name=name,
            address=address,
            identity=identity or f"spiffe://a/ns/default/sa/{name}",
            capture=capture,
            tls_mode=tls_mode,
            target_tls_mode=tls_mode,
        )

    legacy = Endpoint(address="10.0.0.7", port=80, workload="default/legacy")
    mesh = Mesh(
        domain="cluster.local",
        workloads=(
            workload("default/client", "10.0.0.2", "spiffe://a/ns/default/sa/client"),
            workload("default/web-0", "10.0.0.3", SHARED),
            workload("default/web-1", "10.0.0.4", SHARED),
        ),
        endpoints=(Endpoints(ref=PortRef("default/legacy", 80), ready=(legacy,)),),
    )
    return CallerFinder(Latest(Compiled(revision=1, mesh=mesh, report=Report(seen={}))), gateways)


@pytest.mark.parametrize("tls_mode", TlsMode)
def test_there_is_no_caller_if_the_callers_own_proxy_counts_the_request(tls_mode):
    assert callers(tls_mode)(WEB, "10.0.0.2", "") is None


@pytest.mark.parametrize("tls_mode", TlsMode)
def test_a_caller_without_a_proxy_is_identified_by_its_pod_or_address(tls_mode):
    assert callers(tls_mode)(WEB, "10.0.0.7", "") == Peer(pod="default/legacy")
    assert callers(tls_mode)(WEB, "192.0.2.1", "") == Peer(outside="192.0.2.1")


@pytest.mark.parametrize("tls_mode", TlsMode)
def test_requests_from_loopback_have_a_caller_only_if_no_proxy_could_have_sent_them(tls_mode):
    """Sidecars send no plaintext after clients have switched to mutual TLS."""
    found = callers(tls_mode, "explicit")(WEB, "127.0.0.1", "")
    assert found == (Peer(outside="127.0.0.1") if tls_mode.clients_use_tls else None)


@pytest.mark.parametrize("tls_mode", TlsMode)
def test_requests_from_the_gateways_address_have_a_caller_only_if_no_proxy_could_have_sent_them(tls_mode):
    """Pods with networks of their own see the gateway's requests, which it counts, from the address of the machine."""
    caller = callers(tls_mode, gateways=["10.80.255.254"])(WEB, "10.80.255.254", "")
    assert caller == (Peer(outside="10.80.255.254") if tls_mode.clients_use_tls else None)


def test_before_the_first_build_a_caller_is_identified_by_its_address():
    assert CallerFinder(Latest(None))(WEB, "10.0.0.2", "") == Peer(outside="10.0.0.2")


@pytest.mark.parametrize(
    ("identity", "caller"),
    [
        ("spiffe://a/ns/default/sa/client", Peer(pod="default/client")),
        (SHARED, Peer(outside=SHARED)),
        ("spiffe://b/ns/default/sa/client", Peer(outside="spiffe://b/ns/default/sa/client")),
        ("spiffe://a/ns/headgate-system/sa/gateway", GATEWAY),
    ],
)
def test_an_authenticated_caller_is_found_by_its_identity(identity, caller):
    """R70. The address does not help: on a single host all proxies call from one address."""
    assert callers(capture="explicit")(WEB, "127.0.0.1", identity) == caller
