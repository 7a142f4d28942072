"""The answers of the listener for names below `.localhost`; `tests/e2e/test_localhost_names.py` has its requests."""

from tests.make.objects import port, service
from tests.make.values import compiled

from headgate.envoy.encode import Memo, encode
from headgate.envoy.localhost import MOST_LISTED, listed, of_other_hosts
from headgate.envoy.view import Node, project
from headgate.model.routing import Mesh

GATEWAY = Node(id="gateway", proxy_address="127.0.0.1", proxy_port=15001, localhost_port=18080)


def services(count: int) -> Mesh:
    return compiled(*(service(f"web-{number:03}", port(80, "http")) for number in range(count))).mesh


def answers(mesh: Mesh) -> dict[str, str]:
    """Return the texts for hosts that are no name of a Service, by the key of their scope."""
    parts = {part.name: part.render(*part.arguments) for part in of_other_hosts(18080, *listed(mesh))}
    return {
        key: scope.route_configuration.virtual_hosts[0].routes[0].direct_response.body.inline_string  # type: ignore[attr-defined]
        for key, scope in parts.items()
    }


def test_a_list_names_no_more_services_than_a_resource_may_have() -> None:
    rows = answers(services(MOST_LISTED + 2))["localhost/localhost"].splitlines()
    assert rows[1] == "  http://web-000.localhost:18080"
    assert rows[-1] == "  and 2 more: kubectl get services --all-namespaces"
    assert len(rows) == MOST_LISTED + 2


def test_a_mesh_without_http_ports_says_so() -> None:
    assert answers(services(0))["localhost/localhost"] == "No Service has an HTTP port.\n"


def test_only_a_gateway_with_a_port_for_names_has_their_listener() -> None:
    for node, expected in ((GATEWAY, True), (Node(id="gateway", proxy_address="127.0.0.1", proxy_port=15001), False)):
        config = encode(project(services(1), node), Memo())
        resources = {name for by_name in config.values() for name in by_name}
        assert ("localhost" in resources) == expected
        assert ("host/default/web-000/80/web-000.localhost" in resources) == expected
