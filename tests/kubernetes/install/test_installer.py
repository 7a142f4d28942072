"""Which parts of an installation depend on the version of the API server."""

from typing import Any

import pytest

from headgate.errors import NotFound
from headgate.kubernetes.install.installer import Installer
from headgate.kubernetes.install.manifests import Values, manifests
from headgate.resources.definitions.schema_builders import RULES

RESOURCES = [{"name": "customresourcedefinitions", "kind": "CustomResourceDefinition", "namespaced": False}]


class FakeCluster:
    """An API server of this minor version of Kubernetes 1, without headgate, that records what is applied."""

    def __init__(self, minor: str) -> None:
        self.minor = minor
        self.applied: list[Any] = []

    async def get(self, path: str) -> Any:
        if path == "/version":
            return {"major": "1", "minor": self.minor}
        if path == "/apis/apiextensions.k8s.io/v1":
            return {"resources": RESOURCES}
        raise NotFound(path)

    async def apply(self, _path: str, obj: Any, *, manager: str) -> Any:
        self.applied.append(obj)
        return {**obj, "metadata": {**obj["metadata"], "manager": manager}}


@pytest.mark.parametrize(("minor", "expected"), [("20", False), ("24", False), ("25", True), ("31+", True)])
async def test_definitions_have_rules_if_the_api_server_evaluates_them(minor: str, expected: bool) -> None:
    """API servers before Kubernetes 1.25 reject an applied definition with rules."""
    definitions = [obj for obj in manifests(Values(image="headgate:1")) if obj["kind"] == "CustomResourceDefinition"]
    cluster = FakeCluster(minor)
    outcomes = [outcome async for _, outcome in Installer(cluster).apply(definitions)]  # type: ignore[arg-type]
    assert outcomes == ["created"] * len(definitions)
    assert (RULES in str(cluster.applied)) is expected
    assert (cluster.applied == definitions) is expected
