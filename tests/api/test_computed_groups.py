"""The list of computed groups, from which both servers, discovery, OpenAPI and APIServices derive."""

import json

import pytest

from headgate.api import discovery
from headgate.api.aggregated_server import api_services
from headgate.api.computed_groups import AGGREGATED_GROUPS, COMPUTED_GROUPS
from headgate.options import MeshOptions
from headgate.standalone.apiserver import openapi


@pytest.mark.parametrize(("name", "version"), COMPUTED_GROUPS)
def test_discovery_lists_the_resources_of_each_group(name: str, version: str) -> None:
    listed = discovery.resource_list(name, version)["resources"]
    assert listed == COMPUTED_GROUPS[name, version].resources() != []


@pytest.mark.parametrize(("name", "version"), COMPUTED_GROUPS)
def test_the_parsed_path_has_the_attributes_of_its_group(name: str, version: str) -> None:
    """A cluster's API server authorizes a request by them."""
    row = next(row for row in COMPUTED_GROUPS[name, version].resources() if row["namespaced"])
    resource, _, subresource = row["name"].partition("/")
    named = ("web",) if "get" in row["verbs"] else ()
    path = ["namespaces", "shop", resource, *named, *([subresource] if subresource else [])]
    attributes = COMPUTED_GROUPS[name, version].parse(path, {}).attributes
    assert (attributes.group, attributes.version, attributes.resource) == (name, version, resource)
    assert (attributes.namespace, attributes.name) == ("shop", "".join(named))
    assert attributes.verb in row["verbs"]


def test_each_group_has_an_api_service_and_optional_ones_only_on_request() -> None:
    def registered(**options: bool) -> set[tuple[str, str]]:
        services = api_services("headgate-system/headgate", b"", MeshOptions(**options))
        return {(service["spec"]["group"], service["spec"]["version"]) for service in services}

    assert registered(custom_metrics=True, external_metrics=True) == {*AGGREGATED_GROUPS}
    assert {*AGGREGATED_GROUPS} - registered() == {
        ("custom.metrics.k8s.io", "v1beta2"),
        ("external.metrics.k8s.io", "v1beta1"),
    }


@pytest.mark.parametrize("key", [key for key, group in COMPUTED_GROUPS.items() if group.paths()])
def test_the_openapi_document_has_the_paths_of_a_group(key: tuple[str, str]) -> None:
    document = json.loads(openapi.v3_json("apis/{}/{}".format(*key)))
    assert document["paths"].keys() == COMPUTED_GROUPS[key].paths().keys()
    assert {*COMPUTED_GROUPS[key].definitions()} <= document["components"]["schemas"].keys()
