"""Routes for the clients of one namespace (GAMMA): they replace those of the Service for clients with a sidecar there."""

import os
import subprocess
import sys

import pytest
from tests.e2e.gateway_api.hosts import NAMES
from tests.e2e.gateway_api.objects import change, edge_route, fields, rule_of
from tests.e2e.gateway_api.site import Site
from tests.e2e.running_mesh import RunningMesh
from tests.headgate_program import command
from tests.waiting import until

CLIENT = """
import sys, urllib.request
for _ in range(6):
    answer = urllib.request.urlopen(sys.argv[1])
    print(answer.read().decode().strip(), answer.headers.get("x-header-set"))
"""


def answers(mesh: RunningMesh, namespace: str, url: str) -> set[str]:
    """Run a client with a sidecar in a namespace; return the backends that answer it, each with the header of a route."""
    words = ("run", "--state", str(mesh.state), "-n", namespace, "--", sys.executable, "-c", CLIENT, url)
    environment = {name: text for name, text in os.environ.items() if "proxy" not in name.lower()}
    done = subprocess.run([*command(), *words], env=environment, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


@pytest.mark.conformance("MeshConsumerRoute")
def test_a_route_in_another_namespace_applies_to_clients_of_that_namespace_only(mesh: RunningMesh, site: Site) -> None:
    other, outside = site.neighbor(), f"http://echo.{site.namespace}:8080/"
    site.serve("echo", *NAMES)
    parent = {"group": "", "kind": "Service", "name": "echo", "namespace": site.namespace, "port": 8080}
    other.serve("own", "v3")
    marked = change("ResponseHeaderModifier", set=fields(x_header_set="consumer"))
    other.apply(edge_route("consumer", rule_of("own", filters=[marked]), parent=parent))
    other.wait_for_parent("httproute/consumer", Accepted="Accepted", ResolvedRefs="ResolvedRefs")
    everywhere = {f"{name} None" for name in NAMES}
    assert answers(mesh, site.namespace, outside) == everywhere
    assert answers(mesh, other.namespace, outside) == {"v3 consumer"}
    site.apply(edge_route("producer", rule_of("v1"), parent=parent))
    site.wait_for_parent("httproute/producer", Accepted="Accepted", ResolvedRefs="ResolvedRefs")
    assert answers(mesh, site.namespace, outside) == {"v1 None"}
    assert answers(mesh, other.namespace, outside) == {"v3 consumer"}
    assert site.in_mesh().ask(site.address("echo"), "echo/").answered_by == "v1"
    other.delete("httproute/consumer")
    until(lambda: answers(mesh, other.namespace, outside) == {"v1 None"}, "the route of the Service for all clients")
