import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.conftest import ServedMesh
from tests.make import objects

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.resources.registry import SERVICE

Run = Callable[..., Any]
VERSIONS = [objects.service(f"website{suffix}", 8080, selector={"app": "website"}) for suffix in ("", "-v1", "-v2")]


def write(path: Path, *objects: Any) -> str:
    path.write_text(yaml.safe_dump_all(objects, sort_keys=False))
    return str(path)


def test_valid_manifests_have_no_findings_offline(run: Run, tmp_path: Path) -> None:
    ended = run(
        "check", write(tmp_path / "a.yaml", *VERSIONS, objects.split("website", {"website-v1": 90, "website-v2": 10}))
    )
    assert ended == (0, "", "no findings in 4 objects\n")


EXAMPLES = Path(__file__).parents[2] / "examples"
COMPLETE = sorted(
    (
        example
        for example in EXAMPLES.iterdir()
        if any((example / name).exists() for name in ("services.yaml", "website.yaml"))
    ),
    key=lambda path: path.name,
)
"""The examples that need no other directory."""


@pytest.mark.parametrize("example", [*COMPLETE, EXAMPLES / "bookstore"], ids=lambda path: path.name)
def test_an_example_has_no_findings(run: Run, example: Path) -> None:
    code, out, findings = run("check", "--strict", str(example))
    assert (code, out) == (0, "")
    assert findings.startswith("no findings in ")


def test_each_example_says_how_it_is_run_and_is_in_the_list() -> None:
    page = (EXAMPLES / "README.md").read_text()
    directories = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert {name for name in directories if f"[{name}]({name})" in page} == directories
    for name in directories:
        text = (EXAMPLES / name / "README.md").read_text()
        assert f"examples/{name}" in text or "\n$ make run\n" in text, name


def test_each_error_is_printed_with_file_and_line_number(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(
        "apiVersion: split.smi-spec.io/v1alpha4\n"
        "kind: TrafficSplit\n"
        "metadata: {name: website}\n"
        "spec:\n"
        "  service: website\n"
        "  backends:\n"
        "  - {service: website-v1, weight: -1}\n"
        "  - service: website-v2\n"
        '    weight: "10"\n'
    )
    (tmp_path / "broken.yaml").write_text("a: [\n")
    ended = run("check", "bad.yaml", "broken.yaml")
    assert ended.code == 1
    first, second, *_ = ended.out.splitlines()
    assert first == "bad.yaml:7: error Invalid spec.backends[0].weight: must be 0 or more, not -1"
    assert second.startswith("bad.yaml:9: error Invalid spec.backends[1].weight: must be a whole number, not")
    assert "broken.yaml:2: error Invalid is not YAML" in ended.out
    assert "3 errors" in ended.err


def test_fields_without_effect_are_one_note_and_unsupported_volumes_a_warning(run: Run, tmp_path: Path) -> None:
    app = objects.container(command=["sh"], securityContext={"privileged": True})
    spec = {"nodeSelector": {"disk": "ssd"}, "volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]}
    code, out, err = run("check", write(tmp_path / "a.yaml", objects.pod("web", containers=[app], **spec)))
    ignored, volume = sorted(out.splitlines(), key=lambda line: "VolumeNotSupported" in line)
    assert "FieldIgnored" in ignored
    assert "spec: nodeSelector, containers[0].securityContext.privileged have an effect on clusters only" in ignored
    assert "volume v: local pods support only configMap" in volume
    assert (code, err) == (0, "1 warning, 1 note in 1 object\n")


def test_findings_of_the_compiler_name_their_object(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", *VERSIONS, objects.split("website", {"website-v1": 1, "website": 1}))
    ended = run("check", file)
    assert ended.code == 1
    assert "error SelfReference TrafficSplit default/website: spec.backends[1].service: website is both" in ended.out


def test_findings_on_the_split_of_a_canary_name_the_line_of_the_canary(run: Run, tmp_path: Path) -> None:
    backends = [{"service": "website-v1", "weight": "900m"}, {"service": "website-v3", "weight": "100m"}]
    canary = {
        "apiVersion": "headgate.dev/v1beta1",
        "kind": "Canary",
        "metadata": {"name": "rollout"},
        "spec": {"service": "website", "backends": backends, "analysis": {"canary": "website-v3"}},
    }
    ended = run("check", write(tmp_path / "a.yaml", *VERSIONS[1:], canary))  # R32: the root Service may be missing
    assert (
        "warning BackendNotFound Canary default/rollout: spec.backends[1].service: Service default/website-v3"
        in ended.out
    )
    assert "Route      TrafficSplit default/rollout" in run("explain", "http://website:8080/", "-f", "a.yaml").out


def test_warnings_cause_exit_code_1_only_with_strict(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", *VERSIONS, objects.split("website", {"website-v1": 1, "website-v3": 1}))
    loose, strict = run("check", file), run("check", file, "--strict")
    assert (loose.code, strict.code) == (0, 1)
    assert "warning BackendNotFound TrafficSplit default/website: spec.backends[1].service" in loose.out
    assert "1 warning in 4 objects" in loose.err


def test_check_finds_port_mismatches_offline(run: Run, tmp_path: Path) -> None:
    """R35, R39."""
    blue = objects.service("blue-birds", 1024, selector={"app": "blue"})
    split = objects.split("website", {"blue-birds": 1, "website-v1": 1})
    assert "PortMismatch" in run("check", write(tmp_path / "a.yaml", *VERSIONS, blue, split)).out


def test_json_output_has_all_findings(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", objects.split("website", {"website-v1": 1}))
    found = json.loads(run("check", file, "-o", "json").out)
    assert (found["objects"], found["errors"], found["warnings"]) == (1, 0, 1)
    assert found["findings"][0] | {"message": "", "column": 0} == {
        "file": file,
        "line": 7,
        "column": 0,
        "severity": "Warning",
        "reason": "ServiceNotFound",
        "object": "TrafficSplit default/website",
        "field": "spec.service",
        "message": "",
    }


def test_a_directory_without_manifests_is_an_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ended = run("check", "empty")
    assert ended.code == 1
    assert "found no objects in empty" in ended.err


@pytest.mark.parametrize("stage", ["mesh", "report", "xds"])
def test_every_stage_of_compile_prints_deterministic_yaml(run: Run, tmp_path: Path, stage: str) -> None:
    file = write(tmp_path / "a.yaml", *VERSIONS, objects.split("website", {"website-v1": 3, "website-v2": 1}))
    ended = run("compile", file, "--stage", stage)
    assert ended.code == 0
    assert ended.out == run("compile", file, "--stage", stage).out
    assert list(yaml.load_all(ended.out, yaml.CSafeLoader))


def test_compile_shows_the_weights_of_a_split_without_running_pods(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", *VERSIONS, objects.split("website", {"website-v1": 3, "website-v2": 1}))
    resources = list(yaml.load_all(run("compile", file, "--stage", "xds").out, yaml.CSafeLoader))
    endpoints = next(
        item["resource"]
        for item in resources
        if (item["type"], item["name"]) == ("ClusterLoadAssignment", "outbound/default/website/8080")
    )
    weights = {item["locality"]["zone"]: item["load_balancing_weight"] for item in endpoints["endpoints"]}
    assert weights == {"website-v1": 3, "website-v2": 1}


def test_the_pods_of_the_files_resolve_named_target_ports(run: Run, tmp_path: Path) -> None:
    """R38."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "website"}},
        "spec": {"containers": [{"name": "web", "ports": [{"name": "http", "containerPort": 9123}]}]},
    }
    web = objects.service("web", 80, selector={"app": "website"})
    web["spec"]["ports"][0]["targetPort"] = "http"
    mesh = yaml.load(run("compile", write(tmp_path / "a.yaml", web, pod)).out, yaml.CSafeLoader)
    assert mesh["endpoints"][0]["ready"][0]["port"] == 9123


BOOKSTORE = str(Path(__file__).parents[2] / "examples" / "bookstore")


@pytest.mark.parametrize("node", ["gateway", "sidecar/default/bookstore-v1"])
def test_compile_prints_the_configuration_of_each_proxy_with_redacted_keys(run: Run, node: str) -> None:
    """R74. The certificate is a placeholder with the identity of the proxy."""
    ended = run("compile", BOOKSTORE, "--stage", "xds", "--node", node)
    assert ended.code == 0
    found = {(item["type"], item["name"]): item["resource"] for item in yaml.load_all(ended.out, yaml.CSafeLoader)}
    identity = found["Secret", "identity"]["tls_certificate"]
    assert identity["private_key"] == "[redacted]"
    account = "ns/headgate-system/sa/gateway" if node == "gateway" else "ns/default/sa/bookstore"
    assert account in identity["certificate_chain"]["inline_string"]
    assert ("Secret", "roots") in found
    assert (("Listener", "inbound/8080") in found) == (node != "gateway")


def test_an_unknown_node_id_exits_with_2(run: Run) -> None:
    ended = run("compile", BOOKSTORE, "--stage", "xds", "--node", "sidecar/default/bookstore")
    assert ended.code == 2
    assert (
        "there is no proxy 'sidecar/default/bookstore'; write one of: gateway, sidecar/default/bookstore-v1"
        in ended.err
    )


def test_the_access_and_mtls_options_set_the_mode_of_workloads(run: Run) -> None:
    """D21."""
    found = [
        yaml.load(run("compile", BOOKSTORE, *options).out, yaml.CSafeLoader)["workloads"]
        for options in ((), ("--access", "deny", "--mtls", "strict"))
    ]
    buyers = [next(item for item in workloads if item["name"] == "default/buyer") for workloads in found]
    assert [item["access"].get("closed", False) for item in buyers] == [False, True]
    assert [item.get("tls_mode", "permissive") for item in buyers] == ["permissive", "strict"]


def test_check_treats_deployments_of_files_as_pods(run: Run) -> None:
    """R73, R77. A TrafficTarget selects the pods of Deployments in the files."""
    ended = run("check", BOOKSTORE, str(Path(BOOKSTORE).with_name("bookstore-steps")))
    assert (ended.code, ended.out) == (0, "")


def test_check_finds_errors_of_traffic_targets_in_files(run: Run, tmp_path: Path) -> None:
    """R68, R77."""
    access = Path(BOOKSTORE, "access.yaml").read_text()
    (tmp_path / "access.yaml").write_text(access.replace("name: database\n  sources", "name: datebase\n  sources"))
    ended = run("check", BOOKSTORE + "/warehouse.yaml", "access.yaml")
    finding = "warning NoSuchPods TrafficTarget default/warehouse-to-database: spec.destination.name: no pod runs as"
    assert f"access.yaml:71: {finding} ServiceAccount default/datebase; " in ended.out
    assert "; there are pods of ServiceAccount default/database\n" in ended.out
    warehouse = Path(BOOKSTORE, "warehouse.yaml").read_text()
    label = 'app: database\n        headgate.dev/inject: "false"\n    spec:'
    (tmp_path / "warehouse.yaml").write_text(warehouse.replace("app: database\n    spec:", label))
    ended = run("check", "warehouse.yaml", BOOKSTORE + "/access.yaml")
    assert ended.code == 1
    assert (
        "error NotEnforced TrafficTarget default/warehouse-to-database: spec.destination.name: no sidecar enforces"
        in ended.out
    )


def test_compile_prints_valid_objects_despite_errors(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", *VERSIONS)
    (tmp_path / "b.yaml").write_text("kind: [\n")
    ended = run("compile", "a.yaml", "b.yaml", "-o", "json")
    assert ended.code == 1
    assert len(json.loads(ended.out)["frontends"]) == 3
    assert "b.yaml:2: error" in ended.err


async def test_check_without_files_checks_the_running_mesh(served: ServedMesh) -> None:
    for item in (*VERSIONS[:2], objects.split("website", {"website-v1": 90, "website-v2": 10})):
        await served.store.create(item)
    ended = await served.run("check")
    lines = ended.out.splitlines()
    missing = next(line for line in lines if "BackendNotFound" in line)
    assert missing.startswith("warning BackendNotFound TrafficSplit default/website: spec.backends[1].service: ")
    assert any("NoReadyEndpoints" in line for line in lines)  # reported only for the running mesh
    assert ended.code == 0
    assert (await served.run("check", "--strict")).code == 1
    found = json.loads((await served.run("check", "-o", "json")).out)
    assert (found["errors"], found["warnings"], len(found["findings"])) == (0, len(lines), len(lines))


async def test_all_namespaces_of_the_running_mesh_are_the_default(served: ServedMesh, tmp_path: Path) -> None:
    for item in (VERSIONS[0], objects.split("website", {"gone": 1})):
        await served.store.create(item)
    all_of_them = await served.run("check")
    assert "BackendNotFound" in all_of_them.out
    for option in ("-A", "--all-namespaces"):
        assert await served.run("check", option) == all_of_them
    assert (await served.run("check", "-A", "-n", "default")).code == 2
    ended = await served.run("check", "-A", write(tmp_path / "a.yaml", VERSIONS[0]))
    assert ended.code == 2
    assert "--all-namespaces" in ended.err


async def test_check_of_the_running_mesh_has_the_findings_of_the_host(served: ServedMesh) -> None:
    await served.store.create(objects.service("website", 8080))
    about = SERVICE.key("default", "website")
    served.of_host.set((Finding(about, Reason.GATEWAY_NOT_READY, "", "nginx ended"),))
    ended = await served.run("check")
    assert ended.code == 1
    assert "error GatewayNotReady Service default/website: nginx ended" in ended.out.splitlines()


def test_findings_are_colored_only_on_a_terminal_and_never_with_no_color(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.yaml", VERSIONS[0], objects.split("website", {"website-v9": 1}))
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert "\x1b" not in run("check", path).out
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then prints colors as on a terminal
    assert "\x1b[33m" in run("check", path).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[33m" not in run("check", path).out


def test_rules_without_their_workloads_are_noted_with_the_way_to_check_both(run: Run) -> None:
    ended = run("check", BOOKSTORE + "/access.yaml")
    assert "no pod runs as ServiceAccount default/bookstore" in ended.out
    assert "these files have no workloads: check them with the directory that has" in ended.out
    assert (
        "these files have no workloads"
        not in run("check", BOOKSTORE + "/access.yaml", BOOKSTORE + "/warehouse.yaml").out
    )
