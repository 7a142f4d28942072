"""Installs the Gateway API in a cluster, as its users do."""

from collections.abc import Iterator

from tests.make.gateway_definitions import gateway_api_definitions
from tests.pods.conftest import Cluster, until

DEFINITIONS = "customresourcedefinitions.v1.apiextensions.k8s.io"


def install_gateway_api(cluster: Cluster) -> None:
    """Create the CustomResourceDefinitions of the Gateway API unless the cluster has them; wait until it serves them.

    Each write of a definition lets the API server compute its whole OpenAPI document again.
    """
    definitions = gateway_api_definitions()
    names = {item["metadata"]["name"] for item in definitions}
    if not names <= set(_established(cluster)):
        cluster.apply(*definitions)
    until(lambda: names <= set(_established(cluster)))


def _established(cluster: Cluster) -> Iterator[str]:
    """Yield the names of the definitions that the cluster serves."""
    for item in cluster.get(DEFINITIONS)["items"]:
        conditions = item.get("status", {}).get("conditions") or ()
        if any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
            yield item["metadata"]["name"]
