"""Installs the Gateway API in a cluster, as its users do."""

from tests.make.gateway_definitions import gateway_api_definitions
from tests.pods.conftest import Cluster, until


def install_gateway_api(cluster: Cluster) -> None:
    """Create the CustomResourceDefinitions of the Gateway API, and wait until the cluster serves them."""
    definitions = gateway_api_definitions()
    cluster.apply(*definitions)
    until(lambda: all(_is_established(cluster, item["metadata"]["name"]) for item in definitions))


def _is_established(cluster: Cluster, definition: str) -> bool:
    conditions = (
        cluster.get(f"customresourcedefinitions.v1.apiextensions.k8s.io/{definition}")
        .get("status", {})
        .get("conditions")
        or ()
    )
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)
