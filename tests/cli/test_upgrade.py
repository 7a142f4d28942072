"""`headgate upgrade --dry-run` against a served mesh whose API has the Deployment of an installation."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs
from tests.cli.conftest import Ran, ServedMesh
from tests.make.objects import split

from headgate.cli import upgrade
from headgate.cli.inspect_client import InspectClient
from headgate.compiler.compile import compile_mesh
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Compiled, Finding
from headgate.errors import Unavailable
from headgate.kubernetes.install.manifests import Values, manifests
from headgate.plane.feed import snapshot_of
from headgate.plane.mesh_state import HostState
from headgate.resources.mesh_status import MeshProblem
from headgate.resources.registry import TRAFFIC_SPLIT
from headgate.settings import Settings

OLD = "registry.example/headgate:0"


async def install(served: ServedMesh, options: Mapping[str, str] | None = None, manager: str = "headgate") -> None:
    """Store the namespace and the Deployment of an installation, without replicas."""
    objects = manifests(Values(image=OLD, replicas=0, options=options or {}))
    (deployment,) = (obj for obj in objects if obj["kind"] == "Deployment")
    labels = {**deployment["metadata"]["labels"], "app.kubernetes.io/managed-by": manager}
    await served.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "headgate-system"}})
    await served.store.create({**deployment, "metadata": {**deployment["metadata"], "labels": labels}})


async def upgraded(served: ServedMesh, *options: str) -> Ran:
    words = ("upgrade", "--dry-run", "--image", "registry.example/headgate:1", *options)
    return await served.run(*words, "--kubeconfig", str(served.state / "kubeconfig"))


async def test_without_problems_it_says_what_it_would_change(served: ServedMesh) -> None:
    await install(served, {"mtls": "strict", "namespaces": "default"})
    ran = await upgraded(served)
    assert ran.code == 0, ran.err
    assert ran.out == (
        "headgate 0.1.0 -> 0.1.0, image registry.example/headgate:0 -> registry.example/headgate:1: nothing is changed"
        " (--dry-run)\n"
    )


async def test_an_installation_that_it_can_not_check_is_refused(served: ServedMesh) -> None:
    await install(served, {"aggregated_apis": ""})
    ran = await upgraded(served, "--force")
    assert ran.code == 1
    assert "no inspect API (--no-aggregated-apis)" in ran.err


async def test_an_installation_by_helm_is_only_checked(served: ServedMesh) -> None:
    """Before and after `helm upgrade`."""
    await install(served, manager="Helm")
    checked = await upgraded(served)
    assert (checked.code, checked.err) == (0, "")
    assert checked.out.endswith("nothing is changed (--dry-run)\n")
    ran = await served.run("upgrade", "--force", "--kubeconfig", str(served.state / "kubeconfig"))
    assert ran.code == 1
    assert "Helm manages this installation; upgrade it by that tool" in ran.err


async def test_a_cluster_without_an_installation_gets_advice(served: ServedMesh) -> None:
    ran = await upgraded(served)
    assert ran.code == 1
    assert "headgate is not installed on this cluster; run `headgate install`" in ran.err


async def test_a_mesh_that_does_not_respond_stops_it_unless_it_is_forced(
    served: ServedMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    await install(served)

    async def fail(_: object) -> None:
        raise Unavailable("no replica of headgate serves inspect.headgate.dev now")

    monkeypatch.setattr(InspectClient, "status", fail)
    refused, forced = await upgraded(served), await upgraded(served, "--force")
    assert (refused.code, forced.code) == (1, 0)
    for ran in (refused, forced):
        assert "the mesh can't be checked: no replica of headgate serves" in ran.err
    assert forced.out.startswith("headgate of an unknown version -> 0.1.0")


async def test_a_namespace_of_the_mesh_that_is_gone_stops_it(served: ServedMesh) -> None:
    await install(served, {"namespaces": "default,gone"})
    ran = await upgraded(served)
    assert ran.code == 1
    assert "the namespace gone does not exist" in ran.err


async def test_a_problem_of_the_mesh_stops_it_unless_it_is_forced(served: ServedMesh) -> None:
    await install(served)
    served.host.observed = HostState(problems=(MeshProblem(reason="StoreNotWritable", message="the disk is full"),))
    refused, forced = await upgraded(served), await upgraded(served, "--force")
    assert (refused.code, forced.code) == (1, 0)
    for ran in (refused, forced):
        assert "the mesh is not healthy: the disk is full" in ran.err
    assert "--force" in refused.err


async def test_a_mistake_that_the_next_version_finds_stops_it_but_no_known_mistake(
    served: ServedMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake that the running version finds too makes the mesh unhealthy, but an upgrade does not change that."""
    await served.store.create(split("web", {"web": 1}, name="canary"))
    await install(served)
    await served.live_state.wait_compiled()
    assert (await served.run("status")).code == 1
    ran = await upgraded(served)
    assert ran.code == 0, ran.err

    about = TRAFFIC_SPLIT.key("default", "canary")

    async def later(*_: Any) -> Compiled:
        """Compile a mistake as a later version, with more checks, would."""
        compiled = compile_mesh(snapshot_of({about: await served.store.get(about)}), Settings())
        more = Finding(about, Reason.INVALID, "spec", "it has a new mistake")
        findings = compiled.report.findings_of.edited({about: (more,)})
        return structs.replace(compiled, report=structs.replace(compiled.report, findings_of=findings))

    monkeypatch.setattr(upgrade, "compiled_objects", later)
    ran = await upgraded(served)
    assert ran.code == 1
    assert "this version finds a mistake in TrafficSplit default/canary: it has a new mistake" in ran.err
