"""The inspect API, and `headgate proxies`, `config` and `status`, compared with Envoy's admin interface (D29)."""

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.manifests import counting_deployment, external, service_manifest, split_manifest
from tests.e2e.running_mesh import RunningMesh, mesh_in_a_new_directory, occupied
from tests.headgate_program import command
from tests.processes import stopped
from tests.waiting import until
from tests.wire import ask_unix


def proxies(mesh: RunningMesh) -> dict[str, Any]:
    """Return the status of every proxy by node ID."""
    done = mesh.headgate("proxies", "-o", "json")
    assert done.returncode == 0, done.stderr
    return {item["node"]: item["status"] for item in json.loads(done.stdout)["items"]}


def rows(text: str) -> dict[str, Sequence[str]]:
    """Return the cells of a table's lines, keyed by the first cell; if keys are equal, the first line is used."""
    return {line.split()[0]: line.split() for line in reversed(text.splitlines()) if line.strip()}


@pytest.fixture(scope="module")
def meshed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    """Run a mesh with one pod and its sidecar; the pod counts its requests."""
    counted: Path = tmp_path_factory.mktemp("counted") / "requests"
    manifests = [
        service_manifest("web", {"http": 8080}, selector={"app": "web"}),
        counting_deployment("web", counted, labels={"app": "web"}, ports={"http": 8080}),
    ]
    with mesh_in_a_new_directory(manifests={"site.yaml": "\n---\n".join(manifests)}) as mesh:
        until(lambda: {item["state"] for item in proxies(mesh).values()} == {"InSync"})
        yield mesh


def sidecar_of(mesh: RunningMesh) -> str:
    return next(node for node in proxies(mesh) if node.startswith("sidecar/default/web"))


def test_every_proxy_in_sync_has_a_version_for_each_type_and_a_certificate(meshed: RunningMesh) -> None:
    found = proxies(meshed)
    assert set(found) == {"gateway", sidecar_of(meshed)}
    for status in found.values():
        assert status["refusals"] == []
        assert status["lastAcknowledgedTime"]
        for one in status["types"]:
            assert one["held"] == one["resources"]
        assert status["process"]["pid"] > 0
        assert status["certificate"]["notAfterTime"] > status["lastAcknowledgedTime"]
    single = json.loads(meshed.headgate("proxies", "gateway", "-o", "json").stdout)["status"]
    assert all(one["heldVersion"] == one["version"] for one in single["types"])
    assert all(one["version"] for one in single["types"] if one["resources"])
    assert found["gateway"]["certificate"]["identity"].endswith("/ns/headgate-system/sa/gateway")


def test_kubectl_gets_and_explains_proxies(meshed: RunningMesh) -> None:
    assert "proxies" in rows(meshed.kubectl("api-resources", "--api-group=inspect.headgate.dev"))
    table = rows(meshed.kubectl("get", "proxies", "-n", "headgate-system"))
    assert table["NAME"][:3] == ["NAME", "STATE", "LAST_ACK"]
    assert table["gateway"][1] == "InSync"
    assert "heldVersion\t<string>" in meshed.kubectl("explain", "proxies.status.types")
    assert "FIELDS:" in meshed.kubectl("explain", "meshstatuses.status.proxies")
    raw = json.loads(meshed.kubectl("get", "--raw", "/apis/inspect.headgate.dev/v1beta1/proxies"))
    assert [item["node"] for item in raw["items"]] == [sidecar_of(meshed), "gateway"]


DUMPED = {  # keys in Envoy's config dump by headgate's resource type; the dump has no versions of endpoints
    "clusters": ("dynamic_active_clusters", "cluster"),
    "listeners": ("dynamic_listeners", "listener"),
    "routes": ("dynamic_route_configs", "route_config"),
    "secrets": ("dynamic_active_secrets", "secret"),
}


def dumped(mesh: RunningMesh, admin: str) -> dict[str, dict[str, str]]:
    """Return the versions in an Envoy's config dump, by type and name; empty for resources from files."""
    dump = json.loads(mesh.network.run(ask_unix(admin, "/config_dump")))["configs"]
    found: dict[str, dict[str, str]] = {type: {} for type in DUMPED}
    for part in dump:
        for type, (key, field) in DUMPED.items():
            for item in part.get(key, ()):
                state = item.get("active_state", item)
                found[type][item.get("name") or state[field]["name"]] = state.get("version_info", "")
    return found


def test_config_shows_the_versions_of_envoys_config_dump(meshed: RunningMesh) -> None:
    sockets = {"gateway": meshed.instance["admin"]}
    pods = {path.name: path / "_sidecar" / "bootstrap.json" for path in (meshed.state / "pods").iterdir()}
    bootstrap = next(json.loads(path.read_bytes()) for name, path in pods.items() if "_web-" in name)
    sockets[sidecar_of(meshed)] = bootstrap["admin"]["address"]["pipe"]["path"]
    for node, admin in sockets.items():
        done = meshed.headgate("config", node, "-o", "json")
        assert done.returncode == 0, done.stderr
        resources = json.loads(done.stdout)["resources"]
        assert {item["state"] for item in resources} == {"Held"}
        dump = dumped(meshed, admin)
        for type in DUMPED:
            versions = {item["name"]: item["heldVersion"] for item in resources if item["type"] == type}
            assert versions == {name: dump[type][name] for name in versions}, (node, type)
            assert versions
        assert set(dump["clusters"]) - {"xds"} == {item["name"] for item in resources if item["type"] == "clusters"}


def test_config_names_the_objects_of_resources_and_redacts_private_keys(meshed: RunningMesh) -> None:
    table = meshed.headgate("config", "gateway", "clusters").stdout
    assert "Service default/web" in next(line for line in table.splitlines() if "outbound/default/web/8080" in line)
    assert "listeners" not in table
    content = meshed.headgate("config", sidecar_of(meshed), "secrets", "-o", "yaml").stdout
    assert "BEGIN CERTIFICATE" in content
    assert "private_key: '[redacted]'" in content
    assert "PRIVATE KEY" not in content
    one = meshed.headgate("config", "gateway", "listeners", "--name", "proxy", "-o", "json")
    assert [item["name"] for item in json.loads(one.stdout)["resources"]] == ["proxy"]


def test_config_rejects_an_unknown_proxy_type_or_resource_and_lists_the_known_ones(meshed: RunningMesh) -> None:
    done = meshed.headgate("config", "nothing")
    assert (done.returncode, "proxy 'nothing' not found; the proxies are: default/" in done.stderr) == (1, True)
    done = meshed.headgate("config", "gateway", "clutsers")
    assert (done.returncode, "'clutsers' is not a resource type" in done.stderr) == (2, True)
    done = meshed.headgate("config", "gateway", "clusters", "--name", "proxy")
    assert (done.returncode, done.stdout) == (1, "")
    assert "gateway has no resource 'proxy' among its clusters; `headgate config gateway clusters` lists" in done.stderr


def test_a_stopped_proxy_is_lagging_until_it_continues(meshed: RunningMesh) -> None:
    node = sidecar_of(meshed)
    pid = proxies(meshed)[node]["process"]["pid"]
    with stopped(pid):
        meshed.submit(external("other", meshed.backend("other")))
        status = until(lambda: (found := proxies(meshed)[node])["state"] == "Lagging" and found)
        assert "the proxy has not answered for" in status["message"]
        assert any(one["held"] < one["resources"] for one in status["types"])
        shown = meshed.headgate("proxies")
        assert rows(shown.stdout)[node.removeprefix("sidecar/")][1] == "Lagging"
        until(lambda: proxies(meshed)["gateway"]["state"] == "InSync")  # it is Lagging too until it has answered
    until(lambda: proxies(meshed)[node]["state"] == "InSync")


def test_proxies_shows_a_rejected_resource_with_envoys_message_and_its_object(
    mesh: RunningMesh, namespace: str
) -> None:
    mesh.apply(external("taken-range", mesh.backend("fine")), namespace=namespace)
    with occupied(mesh, namespace) as listener:
        host, port = listener.getsockname()
        mesh.apply(service_manifest("taken", {"http": port}, clusterIP=host), namespace=namespace)
        status = until(lambda: (found := proxies(mesh)["gateway"])["state"] == "Refused" and found)
        refusal = next(item for item in status["refusals"] if f"/{namespace}/" in item["resource"])
        assert (refusal["type"], refusal["object"]["kind"], refusal["object"]["name"]) == (
            "listeners",
            "Service",
            "taken",
        )
        assert "Address already in use" in refusal["message"]
        assert refusal["rejectionTime"]
        until(lambda: rows(mesh.headgate("proxies").stdout)["gateway"][1] == "Refused")  # not during a retry
        text = f"gateway rejected 1 resource: outbound/{namespace}/taken/{port}"
        state = until(lambda: found if text in (found := mesh.headgate("status")).stdout else None)
        assert state.returncode == 1
    until(lambda: proxies(mesh)["gateway"]["state"] == "InSync")
    after = mesh.headgate("proxies", "gateway").stdout
    assert "an earlier rejection, now resolved: listeners" in after


def test_status_exits_with_0_for_a_healthy_mesh_and_with_3_without_headgate(meshed: RunningMesh) -> None:
    settled = ("all compiled", "2: 2 in sync")
    done = until(
        lambda: found if all(text in (found := meshed.headgate("status")).stdout for text in settled) else None
    )
    assert done.returncode == 0, done.stdout
    lines = {line[:14].strip(): line[14:] for line in done.stdout.splitlines()}
    assert lines["proxies"] == "2: 2 in sync"
    assert lines["certificates"].startswith("2: the oldest was issued")
    assert lines["findings"] == "none"
    assert lines["adopted"] == "none"
    found = json.loads(meshed.headgate("status", "-o", "json").stdout)["status"]
    assert (found["healthy"], found["problems"], found["pods"]) == (True, [], {"total": 1, "adopted": 0})
    assert meshed.kubectl("get", "meshstatuses").splitlines()[1].split()[:3] == ["mesh", "yes", "2/2"]
    away = subprocess.run(
        [*command(), "status", "--state", str(meshed.root / "none")], capture_output=True, check=False
    )
    assert away.returncode == 3


def test_check_without_files_and_explain_read_the_running_mesh(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    """D21: with `--access deny`, `explain` says that only callers in a TrafficTarget are allowed."""
    manifests = [
        service_manifest("web", {"http": 8080}, selector={"app": "web"}),
        counting_deployment("web", tmp_path / "requests", labels={"app": "web"}, ports={"http": 8080}),
    ]
    mesh = new_mesh("--access", "deny", manifests={"site.yaml": "\n---\n".join(manifests)})
    explained = mesh.headgate("explain", "http://web:8080/", "-o", "json")
    found = json.loads(explained.stdout)["status"]
    assert [item["allowed"] for item in found["backends"][0]["arrivals"]] == [False]
    assert explained.returncode == 1
    found = json.loads(mesh.headgate("explain", "http://web:8080/", "--from", "deploy/web", "-o", "json").stdout)
    caller = found["status"]["caller"]
    assert (caller["object"]["kind"], caller["object"]["name"]) == ("Deployment", "web")
    assert caller["identity"].endswith("/sa/default")
    assert mesh.headgate("check").returncode == 0
    mesh.apply(split_manifest("web", "web", {"nothing": 1}))
    checked = mesh.headgate("check")
    assert "warning BackendNotFound TrafficSplit default/web: spec.backends[0].service" in checked.stdout
    assert mesh.headgate("check", "--strict").returncode == 1


def test_status_shows_the_proxies_and_pods_that_a_restarted_headgate_adopted(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    manifests = [counting_deployment("web", tmp_path / "requests", labels={"app": "web"}, ports={"http": 8080})]
    mesh = new_mesh(manifests={"site.yaml": "\n---\n".join(manifests)})
    until(lambda: {item["state"] for item in proxies(mesh).values()} == {"InSync"})
    until(
        lambda: [pod["status"]["phase"] for pod in mesh.get("pods")["items"]] == ["Running"]
    )  # the ready line does not wait for pods without a Service
    mesh.kill()
    mesh.start()

    def is_adopted() -> bool:
        output = mesh.headgate("status").stdout
        assert "adopted       2 proxies and 1 pod of an earlier run" in output, output
        return True

    until(is_adopted)
    assert {status["process"]["adopted"] for status in proxies(mesh).values()} == {True}
