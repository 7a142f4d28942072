"""The tests of the Gateway API with real pods: the same tests as on one machine, collected here with another `site`.

Those of TLSRoutes, of TCPRoutes' references and of extended features of HTTPRoutes run on one machine only: proxies get the same
routes on both hosts.
"""

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.e2e.gateway_api.site import Site
from tests.e2e.gateway_api.test_gateways import *  # noqa: F403
from tests.e2e.gateway_api.test_grpc_routes import *  # noqa: F403
from tests.e2e.gateway_api.test_http_routes import *  # noqa: F403
from tests.e2e.gateway_api.test_mesh import *  # noqa: F403
from tests.e2e.gateway_api.test_mesh import marking
from tests.e2e.gateway_api.test_tcp_routes import *  # noqa: F403
from tests.pods.cluster_host import SITE, ClusterHost, prepare
from tests.pods.conftest import Cluster
from tests.pods.gateway_api import install_gateway_api


@pytest.fixture(scope="module")
def host(shared_cluster: Cluster) -> Iterator[ClusterHost]:
    """A cluster with the pods and the Gateway that all tests share."""
    cluster = shared_cluster
    install_gateway_api(cluster)
    prepare(cluster)
    with closing(ClusterHost(cluster)) as found:
        yield found


@pytest.fixture
def site(host: ClusterHost) -> Iterator[Site]:
    """Return the namespace with the Services v1, v2 and v3."""
    yield Site(host, SITE)
    host.reset()


@pytest.mark.conformance("MeshFrontend")
def test_a_request_to_a_pods_address_bypasses_the_routes_of_its_service(mesh_site: Site) -> None:
    mesh_site.apply(marking("app", "v2"))
    by_service = mesh_site.ask(mesh_site.address("v2"), "v2/")
    assert (by_service.answered_by, by_service.headers.get("x-header-set")) == ("v2", "app")
    by_pod = mesh_site.ask(mesh_site.backends["v2"].address, "v2/")
    assert (by_pod.answered_by, by_pod.headers.get("x-header-set")) == ("v2", None)
