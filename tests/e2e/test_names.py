"""Clients reach a Service by every spelling of its name and with every version of HTTP (R2, R30)."""

import itertools

import pytest
from tests.e2e.manifests import external
from tests.e2e.running_mesh import RunningMesh
from tests.wire import Request

FORMS = ("web.{}", "web.{}.svc", "web.{}.svc.cluster.local")
PORTS = ("", ":8080")


def test_a_split_applies_to_every_form_of_the_services_name(mesh: RunningMesh, web: str) -> None:
    """R2: in a URL for the HTTP proxy, and as Host on the Service's address."""
    address = mesh.address("web", 8080, web)
    for form, port in itertools.product(FORMS, PORTS):
        host = form.format(web) + port
        proxied = Request(mesh.proxy, target=f"http://{host}/", host=host)
        assert mesh.send(4, proxied) == {"v1": 2, "v2": 2}, host
        assert mesh.send(4, Request(mesh.proxy, host=host)) == {"v1": 2, "v2": 2}, host
        assert mesh.send(4, Request(address, host=host)) == {"v1": 2, "v2": 2}, host
    for host in ("web", "web:8080", str(address), "anything.example"):  # the Service's listener accepts every Host
        assert mesh.send(4, Request(address, host=host)) == {"v1": 2, "v2": 2}, host
    by_address = Request(mesh.proxy, target=f"http://{address}/", host=str(address))
    assert mesh.send(4, by_address) == {"v1": 2, "v2": 2}


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_a_host_matches_in_any_case_and_with_a_final_dot(mesh: RunningMesh, web: str, version: str) -> None:
    """R2: the proxy compares hosts as DNS compares names."""
    for form, port in itertools.product(("web.{}.", "WEB.{}.Svc.Cluster.Local", "Web.{}.svc.cluster.LOCAL."), PORTS):
        host = form.format(web) + port
        if version == "2":
            assert mesh.send_h2(4, mesh.proxy, host) == {"v1": 2, "v2": 2}, host
        else:
            assert mesh.send(4, Request(mesh.proxy, target=f"http://{host}/", host=host)) == {"v1": 2, "v2": 2}, host
            assert mesh.send(4, Request(mesh.proxy, host=host)) == {"v1": 2, "v2": 2}, host


def test_a_name_without_namespace_is_a_service_of_the_namespace_default(mesh: RunningMesh, namespace: str) -> None:
    """The HTTP proxy serves all clients and can't know a client's namespace."""
    name = f"only-{namespace}"
    mesh.apply(external(name, mesh.backend("here")))
    for host in (name, f"{name}:8080"):
        assert mesh.send(2, Request(mesh.proxy, target=f"http://{host}/", host=host)) == {"here": 2}


def test_the_proxy_answers_404_with_advice_for_an_unknown_name(mesh: RunningMesh) -> None:
    for host in ("unknown.nowhere:8080", "unknown"):
        answer = mesh.ask(Request(mesh.proxy, target=f"http://{host}/", host=host))
        assert answer.status == 404
        assert answer.body == (
            f"headgate: no Service has the host {host}, or the Service has no such TCP port. "
            "Write name.namespace:port; a name alone is looked up in the namespace default.\n"
        )


def test_clients_of_all_http_versions_share_one_address(mesh: RunningMesh, web: str) -> None:
    address = mesh.address("web", 8080, web)
    for version in ("1.1", "1.0"):
        assert mesh.send(4, Request(address, host="web", version=version)) == {"v1": 2, "v2": 2}
    assert mesh.send_h2(100, address, "web") == {"v1": 50, "v2": 50}
    assert mesh.send_h2(100, mesh.proxy, f"web.{web}:8080") == {"v1": 50, "v2": 50}


def test_the_application_gets_the_clients_host_header(mesh: RunningMesh, namespace: str) -> None:
    """The proxy does not rewrite the Host header."""
    backend = mesh.backend("v1")
    mesh.apply(external("web", backend), namespace=namespace)
    mesh.send(1, Request(mesh.address("web", 8080, namespace), host="shop.example"))
    mesh.send(1, mesh.request("web", 8080, namespace=namespace, via="proxy"))
    assert backend.hosts == {"shop.example": 1, f"web.{namespace}:8080": 1}
