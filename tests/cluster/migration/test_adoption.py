"""Installing over definitions of other meshes that have objects, and giving the definitions back."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import replica
from tests.cluster.api_server import MERGE, KubeApiServer
from tests.cluster.control_planes import DEADLINE_S, eventually
from tests.cluster.installation import WITHOUT_APIS, install, on_this_machine
from tests.cluster.isolation import DEFINITIONS, remove_definition
from tests.make.smi_definitions import ORIGINS, Origin, plural, split

from headgate.kubernetes.install.custom_resources import mesh_kinds
from headgate.kubernetes.install.definitions import is_own
from headgate.kubernetes.install.installer import Installer
from headgate.resources.kind import split_api_version
from headgate.resources.meta import Object
from headgate.resources.versions import to_hub

HUBS = {kind.kind: kind.versions[0] for kind in mesh_kinds()}
PROJECTS = {origin.name: origin for origin in ORIGINS}
"""Those of `sdk` and `flagger` differ from these by their versions only: `tests/kubernetes/install/test_definitions.py` has them."""
LINKERD, OSM, ARGO, EARLY = (PROJECTS[name] for name in ("linkerd", "osm", "argo", "early"))
PUBLISHED = "io.smi-spec.split.v1alpha4.TrafficSplit"


def definition_path(definition: Object) -> str:
    return f"/apis/{definition['apiVersion']}/customresourcedefinitions"


def object_path(obj: Object, version: str = "") -> str:
    group, own = split_api_version(obj["apiVersion"])
    return f"/apis/{group}/{version or own}/namespaces/shop/{plural(obj['kind'])}"


def content(obj: Any) -> Any:
    """Return what users write: an object without the API server's metadata and the status."""
    metadata = {
        name: obj["metadata"][name] for name in ("name", "annotations", "ownerReferences") if obj["metadata"].get(name)
    }
    return {name: value for name, value in obj.items() if name not in {"status", "metadata"}} | {"metadata": metadata}


@pytest.fixture
def cluster(installed: KubeApiServer) -> Iterator[KubeApiServer]:
    """The API server, with headgate's definitions before and after the test."""
    yield installed
    for definition in installed.call("GET", DEFINITIONS)[1]["items"]:
        if not is_own(definition):
            remove_definition(installed, definition["metadata"]["name"])
    asyncio.run(install(installed, WITHOUT_APIS, gateway_api=False))


class Cluster:
    """An API server with the definitions and objects of another mesh."""

    def __init__(self, server: KubeApiServer, origin: Origin) -> None:
        self.server = server
        self.origin = origin
        self.names = [definition["metadata"]["name"] for definition in origin.definitions]

    async def begin(self) -> None:
        """Replace headgate's definitions of the same kinds, and create the objects."""
        for name in self.names:
            remove_definition(self.server, name)
        for definition in self.origin.definitions:
            self.server.make(definition_path(definition), definition)
        for obj in self.origin.objects:
            path = object_path(obj)
            await eventually(lambda: self.server.call("GET", path)[0] == 200)  # noqa: B023 - called only here
            self.server.make(path, obj)

    def definition(self, name: str) -> Any:
        return self.get(f"{DEFINITIONS}/{name}")

    def objects_of_installation(self) -> Sequence[Object]:
        """Return the objects that an installation applies."""
        return tuple(on_this_machine(self.server, WITHOUT_APIS))

    def own_definitions(self) -> Sequence[Object]:
        """Return headgate's definitions of the kinds that the other mesh has, which an uninstallation gives back."""
        return [obj for obj in self.objects_of_installation() if obj["metadata"]["name"] in self.names]

    def get(self, path: str) -> Any:
        status, answer = self.server.call("GET", path)
        assert status == 200, (path, answer)
        return answer

    def objects(self, version: str = "") -> Sequence[Any]:
        """Return the objects, each in its own version, or in headgate's version (`hub`)."""
        return [
            content(self.get(f"{object_path(obj, version and HUBS[obj['kind']])}/{obj['metadata']['name']}"))
            for obj in self.origin.objects
        ]

    def write_all(self) -> None:
        """Write each object in its version, as a client of the other mesh."""
        for obj in self.origin.objects:
            labels = {"metadata": {"labels": {"written": "again"}}}
            status, answer = self.server.call(
                "PATCH", f"{object_path(obj)}/{obj['metadata']['name']}", labels, content_type=MERGE
            )
            assert status == 200, answer

    def publishes_status(self) -> bool:
        """Return whether the OpenAPI document, by which kubectl validates objects, has the status of splits.

        The API server writes the document a second or more after a change to a definition.
        """
        return "status" in self.get("/openapi/v2")["definitions"][PUBLISHED]["properties"]

    def assert_migrated(self) -> None:
        """Assert that all objects are stored in headgate's version."""
        for name in self.names:
            definition = self.definition(name)
            assert definition["status"]["storedVersions"] == [HUBS[definition["spec"]["names"]["kind"]]]
        specs = [content(to_hub(obj))["spec"] for obj in self.origin.objects]
        assert [obj["spec"] for obj in self.objects("hub")] == specs

    def assert_given_back(self, before: Mapping[str, Any]) -> None:
        """Assert that the definitions are as `before` the installation, by name, and the objects as their users wrote them."""
        for name, definition in before.items():
            after = self.definition(name)
            assert after["status"]["storedVersions"] == definition["status"]["storedVersions"]
            assert after["metadata"].get("labels", {}) == definition["metadata"].get("labels", {})
            if self.origin.name != "early":  # v1beta1 had fields that v1 does not accept
                assert after["spec"] == definition["spec"]
        assert self.objects() == [content(obj) for obj in self.origin.objects]

    def has_statuses(self) -> bool:
        """Return whether the control plane has written the status of each split."""
        splits = [obj for obj in self.origin.objects if obj["kind"] == "TrafficSplit"]
        return all("conditions" in self.get(f"{object_path(obj)}/web").get("status", {}) for obj in splits)


def kubectl(cluster: KubeApiServer, *words: str, stdin: str = "") -> str:
    program = Path(sys.executable).parent / "kubectl"
    command = [str(program), "--kubeconfig", str(cluster.kubeconfig()), *words]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_objects_are_migrated_with_kubectl_after_helm_has_taken_over_their_definition(
    cluster: KubeApiServer,
) -> None:
    """docs/tasks/kubernetes.md has these commands. The chart writes headgate's stored version at once."""
    mesh = Cluster(cluster, LINKERD)
    (name,) = mesh.names
    await mesh.begin()
    before = mesh.definition(name)["spec"]
    async with cluster.client() as client:
        installer = Installer(client)
        objects = mesh.objects_of_installation()
        async for _ in installer.apply(objects):
            pass
        (own,) = (obj for obj in objects if obj["metadata"]["name"] == name)
        path = f"{DEFINITIONS}/{name}"
        assert cluster.call("PATCH", path, {"spec": own["spec"]}, content_type=MERGE)[0] == 200
        assert mesh.definition(name)["status"]["storedVersions"] == ["v1alpha1", "v1alpha4"]
        with replica.serving(cluster):
            await eventually(mesh.has_statuses)
            await eventually(mesh.publishes_status)
            splits = kubectl(cluster, "get", name, "--all-namespaces", "-o", "json")
            assert (
                kubectl(cluster, "replace", "-f", "-", stdin=splits)
                == f"trafficsplit.{name.partition('.')[2]}/web replaced\n"
            )
            stored = ("--type", "merge", "-p", '{"status": {"storedVersions": ["v1alpha4"]}}')
            kubectl(cluster, "patch", "customresourcedefinition", name, "--subresource", "status", *stored)
        outcomes = [outcome async for _, outcome in installer.delete(mesh.own_definitions())]
    assert outcomes == ["kept: it was there before headgate, and has its earlier content again"]
    assert mesh.definition(name)["spec"] == before
    assert mesh.objects() == [content(obj) for obj in mesh.origin.objects]


async def test_an_object_with_a_mistake_is_named_and_stops_no_other_object(cluster: KubeApiServer) -> None:
    """The definition of another mesh has accepted it; the API server converts all objects of a kind at a time."""
    heavy = {**split("v1alpha1", v1="heavy"), "metadata": {"name": "heavy", "namespace": "shop"}}
    mesh = Cluster(cluster, ARGO)
    await mesh.begin()
    cluster.make(object_path(heavy), heavy)
    (name,) = mesh.names
    before = mesh.definition(name)
    async with cluster.client() as client:
        installer = Installer(client)
        objects = mesh.own_definitions()
        async for _ in installer.apply(objects):
            pass
        with replica.serving(cluster):
            await eventually(mesh.has_statuses)
            (outcome,) = [outcome async for _, outcome in installer.migrate(objects)]
            assert "correct or delete them, and install again: shop/heavy: " in outcome
            assert cluster.call("DELETE", f"{object_path(heavy)}/heavy")[0] == 200
            (outcome,) = [outcome async for _, outcome in installer.migrate(objects)]
            assert outcome == "migrated: 1 object is stored in v1alpha4"
            assert mesh.objects() == [content(obj) for obj in mesh.origin.objects]
        mesh.assert_migrated()
        outcomes = [outcome async for _, outcome in installer.delete(mesh.own_definitions())]
        assert outcomes == ["kept: it was there before headgate, and has its earlier content again"]
    mesh.assert_given_back({name: before})


@pytest.mark.parametrize("origin", [OSM, EARLY], ids=lambda origin: origin.name)
async def test_objects_of_another_mesh_are_adopted_and_given_back(cluster: KubeApiServer, origin: Origin) -> None:
    """The control plane reads them, then they are stored in its version, and after an uninstallation all is as before."""
    mesh = Cluster(cluster, origin)
    await mesh.begin()
    before = {name: mesh.definition(name) for name in mesh.names}
    async with cluster.client() as client:
        installer = Installer(client)
        objects = mesh.own_definitions()
        async for _ in installer.apply(objects):
            pass
        expected = [content(obj) for obj in origin.objects]
        mesh.write_all()  # no replica converts objects yet
        with replica.serving(cluster):
            await eventually(mesh.has_statuses)
            assert mesh.objects() == expected
            outcomes = {obj["metadata"]["name"]: outcome async for obj, outcome in installer.migrate(objects)}
            assert all("migrated: 1 object is stored in v1alpha" in outcome for outcome in outcomes.values()), outcomes
            assert [obj async for obj, _ in installer.migrate(objects)] == []
            async for _ in installer.apply(objects):
                pass
            assert mesh.objects() == expected
        mesh.assert_migrated()
        outcomes = {obj["metadata"]["name"]: outcome async for obj, outcome in installer.delete(mesh.own_definitions())}
        assert {name for name, outcome in outcomes.items() if outcome != "deleted"} == set(mesh.names)
    mesh.assert_given_back(before)
