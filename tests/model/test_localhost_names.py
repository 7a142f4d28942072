"""The names below `.localhost` by which browsers reach Services."""

import pytest
from tests.make.objects import port, service
from tests.make.values import compiled

from headgate.model.localhost_names import LocalhostName, names_of, resolve, shortest_names, url
from headgate.model.routing import Frontend, PortRef

WEB = Frontend(service="shop/web", ports=(80, 5432, 9000), port_names=("http", "sql", "http-admin"))


def test_a_service_has_a_name_and_one_for_each_named_port() -> None:
    assert [(named.host, named.port) for named in names_of(WEB, {80, 9000})] == [
        ("web.shop.localhost", 80),
        ("http.web.shop.localhost", 80),
        ("sql.web.shop.localhost", 0),
        ("http-admin.web.shop.localhost", 9000),
    ]


@pytest.mark.parametrize(("http_ports", "first"), [({80, 70}, 80), ({9000, 8080}, 8080), ((), 0)])
def test_the_name_of_a_service_leads_to_port_80_or_the_lowest_http_port(http_ports: set[int], first: int) -> None:
    (named,) = names_of(Frontend(service="shop/web", ports=(70, 80, 8080, 9000)), http_ports)
    assert named.port == first


def test_a_service_of_the_namespace_default_has_a_name_without_it_too() -> None:
    hosts = [named.host for named in names_of(Frontend(service="default/web", ports=(80,)), {80})]
    assert hosts == ["web.default.localhost", "web.localhost"]


def test_each_http_port_with_a_name_is_listed_once_by_its_shortest_name() -> None:
    mesh = compiled(
        service("web", port(80, "http"), port(9000, "http-admin"), port(5432, "tcp-sql")),
        service("db", port(5432, "tcp-sql")),
    ).mesh
    assert list(shortest_names(mesh)) == [
        LocalhostName("web.localhost", "default/web", 80),
        LocalhostName("http-admin.web.default.localhost", "default/web", 9000),
    ]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("web.default.localhost", PortRef("default/web", 80)),
        ("WEB.Localhost.", PortRef("default/web", 80)),
        ("http-admin.web.default.localhost", PortRef("default/web", 9000)),
        ("tcp-sql.web.default.localhost", None),
        ("web.default", None),
        ("localhost", None),
    ],
)
def test_a_name_leads_to_an_http_port(host: str, expected: PortRef | None) -> None:
    mesh = compiled(service("web", port(80, "http"), port(9000, "http-admin"), port(5432, "tcp-sql"))).mesh
    assert resolve(mesh, host) == expected


def test_a_url_omits_port_80() -> None:
    assert url("web.localhost", 18080) == "http://web.localhost:18080"
    assert url("web.localhost", 80) == "http://web.localhost"
