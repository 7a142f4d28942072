"""The containers, volumes and probes of transparent sidecars on Kubernetes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec import structs
from tests.admission.stored_view import SHOP, shop_view
from tests.admission.web_pod import APP, OPTIONS, web_pod
from tests.decoding import completed
from tests.make.objects import container, namespace, tls_config
from tests.make.values import snapshot

from headgate.admission.sidecar_containers import SidecarOptions, transparent_sidecars, with_transparent_sidecar
from headgate.compiler.compile import compile_mesh
from headgate.errors import Invalid
from headgate.model.probes import HealthCheck, PortCheck
from headgate.plane.feed import snapshot_of
from headgate.plane.snapshot_view import SnapshotView
from headgate.resources.meta import Object
from headgate.resources.registry import key_of
from headgate.settings import DEFAULTS


def injected(wanted: Object, namespace_labels: Mapping[str, str]) -> Object:
    return completed(transparent_sidecars("labelled", OPTIONS))(wanted, None, shop_view(namespace_labels))


def names(obj: Object, field: str) -> list[str]:
    return [item["name"] for item in obj["spec"][field]]


@pytest.mark.parametrize(
    ("namespace_label", "pod_label", "expected"),
    [
        ("true", "", True),
        ("true", "false", False),
        ("", "", False),
        ("", "true", True),
        ("false", "true", True),
        ("enabled", "", True),
        ("enabled", "disabled", False),
    ],
)
def test_labels_of_namespace_and_pod_decide_whether_the_pod_gets_a_sidecar(
    namespace_label: str, pod_label: str, expected: bool
) -> None:
    """R77. The pod's own label has precedence."""
    found = injected(
        web_pod(labels={"headgate.dev/inject": pod_label} if pod_label else {}),
        {"headgate.dev/inject": namespace_label} if namespace_label else {},
    )
    assert ("headgate-sidecar" in names(found, "containers")) is expected


@pytest.mark.parametrize("around", [{}, {"headgate.dev/inject": "false"}])
@pytest.mark.parametrize("selector", [{"app": "web"}, {}])
def test_a_tls_config_injects_pods_of_a_namespace_without_the_label(
    around: Mapping[str, str], selector: Mapping[str, str]
) -> None:
    """R77. The webhook reads TLSConfigs from the snapshot. Without labels, a selector selects all pods of the namespace."""
    objects = (tls_config("strict", selector, namespace=SHOP), namespace(SHOP, labels=around))
    view = SnapshotView(snapshot(*objects))
    inject = completed(transparent_sidecars("labelled", OPTIONS))
    assert "headgate-sidecar" in names(inject(web_pod(labels={"app": "web"}), None, view), "containers")
    out = web_pod(labels={"app": "web", "headgate.dev/inject": "disabled"})
    assert inject(out, None, view) == out
    other = {**out, "metadata": {**out["metadata"], "namespace": "other"}}
    assert inject(other, None, view) == other


def test_an_annotation_injects_a_pod_and_a_label_overrides_it() -> None:
    wanted = web_pod()
    wanted = {**wanted, "metadata": {**wanted["metadata"], "annotations": {"headgate.dev/inject": "enabled"}}}
    assert "headgate-sidecar" in names(injected(wanted, {}), "containers")
    labels = {"headgate.dev/inject": "disabled"}
    assert names(injected({**wanted, "metadata": {**wanted["metadata"], "labels": labels}}, {}), "containers") == [
        "app"
    ]


@pytest.mark.parametrize("system", ["kube-system", "headgate-system"])
def test_pods_of_system_namespaces_get_no_sidecar(system: str) -> None:
    """Kubernetes 1.20 does not write the label by which webhooks exclude these namespaces."""
    wanted = web_pod(labels={"headgate.dev/inject": "true"})
    wanted = {**wanted, "metadata": {**wanted["metadata"], "namespace": system}}
    view = shop_view({"headgate.dev/inject": "true"}, name=system)
    assert completed(transparent_sidecars("labelled", OPTIONS))(wanted, None, view) == wanted


@pytest.mark.parametrize("namespace_label", ["true", "false", ""])
def test_an_invalid_value_of_the_label_is_rejected_with_the_valid_values(namespace_label: str) -> None:
    wanted = web_pod(labels={"headgate.dev/inject": "on"})
    with pytest.raises(
        Invalid,
        match=r'metadata\.labels\.headgate\.dev/inject: must be "true", "enabled", "false" or "disabled", not .on.',
    ):
        injected(wanted, {"headgate.dev/inject": namespace_label})


def test_kubectl_logs_and_exec_use_the_application_and_not_the_sidecar() -> None:
    """The sidecar is the first container. A choice of the user stays."""
    key = "kubectl.kubernetes.io/default-container"
    found = with_transparent_sidecar(web_pod(), OPTIONS)
    assert names(found, "containers") == ["headgate-sidecar", "app"]
    assert found["metadata"]["annotations"][key] == "app"
    chosen = web_pod()
    chosen = {**chosen, "metadata": {**chosen["metadata"], "annotations": {key: "other"}}}
    assert with_transparent_sidecar(chosen, OPTIONS)["metadata"]["annotations"][key] == "other"
    native = with_transparent_sidecar(web_pod(), structs.replace(OPTIONS, native=True))
    assert key not in native["metadata"]["annotations"]


def test_a_pod_gets_only_one_sidecar_and_a_host_network_pod_gets_none() -> None:
    labels = {"headgate.dev/inject": "true"}
    once = injected(web_pod(), labels)
    assert injected(once, labels) == once
    on_host = web_pod(hostNetwork=True)
    assert injected(on_host, labels) == on_host


@pytest.mark.parametrize("port", [15001, 15006, 15020])
def test_an_application_on_a_port_of_the_sidecar_is_rejected(port: int) -> None:
    app = container(ports=[{"containerPort": port, "protocol": "TCP"}])
    with pytest.raises(
        Invalid, match=rf"spec\.containers\[0\]\.ports\[0\]\.containerPort: {port} is the sidecar's own"
    ):
        injected(web_pod(app), {"headgate.dev/inject": "true"})


@pytest.mark.parametrize("port", [15001, 15006])
def test_a_port_of_the_sidecar_can_not_be_excluded(port: int) -> None:
    """Otherwise the init container would reject it, and the pod would not start."""
    labels = {"headgate.dev/inject": "true"}
    wanted = web_pod(labels=labels)
    annotations = {"headgate.dev/excluded-inbound-ports": f"9102,{port}"}
    wanted = {**wanted, "metadata": {**wanted["metadata"], "annotations": annotations}}
    with pytest.raises(Invalid, match=rf"excluded-inbound-ports: {port} is the sidecar's own port"):
        injected(wanted, {})


def test_the_sidecar_starts_before_the_application_and_after_the_redirection() -> None:
    found = with_transparent_sidecar(web_pod(initContainers=[{"name": "setup"}]), OPTIONS)
    assert names(found, "containers") == ["headgate-sidecar", "app"]
    sidecar = found["spec"]["containers"][0]
    assert sidecar["lifecycle"]["postStart"]["exec"]["command"] == ["headgate", "sidecar", "wait"]


def test_init_containers_run_before_the_redirection_if_the_sidecar_starts_after_them() -> None:
    found = with_transparent_sidecar(web_pod(initContainers=[{"name": "setup"}]), OPTIONS)
    assert names(found, "initContainers") == ["setup", "headgate-redirect"]


@pytest.mark.parametrize(
    ("policy", "native", "run"),
    [
        ("Always", False, ["run"]),
        ("Never", False, ["run", "--job"]),
        ("OnFailure", False, ["run", "--job"]),
        ("Always", True, ["run"]),
        ("Never", True, ["run"]),
        ("OnFailure", True, ["run"]),
    ],
)
def test_a_sidecar_drains_and_that_of_a_job_ends_by_itself_unless_it_is_native(
    policy: str, native: bool, run: Sequence[str]
) -> None:
    options = SidecarOptions(image="headgate:1", xds="headgate:15010", native=native)
    spec = with_transparent_sidecar(web_pod(restartPolicy=policy), options)["spec"]
    containers = [*spec["containers"], *spec["initContainers"]]
    (sidecar,) = [item for item in containers if item["name"] == "headgate-sidecar"]
    assert sidecar["command"] == ["headgate", "sidecar", *run]
    assert sidecar["lifecycle"]["preStop"]["exec"]["command"] == ["headgate", "sidecar", "drain"]


def test_the_next_container_starts_when_a_native_sidecar_has_its_configuration() -> None:
    options = SidecarOptions(image="headgate:1", xds="headgate:15010", native=True)
    sidecar = with_transparent_sidecar(web_pod(), options)["spec"]["initContainers"][1]
    assert sidecar["startupProbe"]["httpGet"] == sidecar["readinessProbe"]["httpGet"]
    assert sidecar["startupProbe"]["failureThreshold"] * sidecar["startupProbe"]["periodSeconds"] == 1200


def test_a_sidecar_without_processor_time_stays_ready_for_a_minute() -> None:
    """Its pod would leave the Services, though it serves."""
    pod = with_transparent_sidecar(web_pod(), SidecarOptions(image="headgate:1", xds="headgate:15010"))
    (sidecar,) = [item for item in pod["spec"]["containers"] if item["name"] == "headgate-sidecar"]
    probe = sidecar["readinessProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] == 60


def test_a_native_sidecar_is_a_restarting_init_container() -> None:
    """Kubernetes 1.29 and newer start this container before the other containers, and end it after them, also in Jobs."""
    options = SidecarOptions(image="headgate:1", xds="headgate:15010", native=True)
    found = with_transparent_sidecar(web_pod(initContainers=[{"name": "setup"}]), options)
    assert names(found, "initContainers") == ["headgate-redirect", "headgate-sidecar", "setup"]
    assert found["spec"]["initContainers"][1]["restartPolicy"] == "Always"
    assert "postStart" not in found["spec"]["initContainers"][1]["lifecycle"]
    assert names(found, "containers") == ["app"]


def test_the_sidecar_serves_probes_for_the_kubelet() -> None:
    """R70. The kubelet has no identity, and to a connection the sidecar would answer before the application listens."""
    grpc = {"name": "api", "startupProbe": {"grpc": {"port": 9000, "service": "live"}, "failureThreshold": 30}}
    app, api = with_transparent_sidecar(web_pod(APP, grpc), OPTIONS)["spec"]["containers"][1:]

    def served(path: str) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": 15020, "scheme": "HTTP"}}

    assert app["readinessProbe"] == {**served("/app/readiness"), "periodSeconds": 1}
    assert app["livenessProbe"] == {**served("/app/liveness"), "timeoutSeconds": 3}
    assert api["startupProbe"] == {**served("/api/startup"), "failureThreshold": 30}


def test_a_native_sidecar_serves_the_probes_of_restarting_init_containers() -> None:
    """An older sidecar starts after the init containers. There these are not redirected, so their probes work as they are."""
    agent = {"name": "agent", "restartPolicy": "Always", "startupProbe": {"tcpSocket": {"port": 7000}}}
    wanted = web_pod(initContainers=[agent])
    old = with_transparent_sidecar(wanted, OPTIONS)
    assert old["spec"]["initContainers"][0] == agent
    assert "agent" not in old["metadata"]["annotations"]["headgate.dev/probes"]
    new = with_transparent_sidecar(wanted, SidecarOptions(image="headgate:1", xds="headgate:15010", native=True))
    assert new["spec"]["initContainers"][2]["startupProbe"]["httpGet"]["path"] == "/agent/startup"
    new = {**new, "status": {"podIP": "10.0.0.1", "phase": "Running"}}
    (workload,) = compile_mesh(snapshot_of({key_of(new): new}), DEFAULTS, {}).mesh.workloads
    assert PortCheck(name="agent/startup", port=7000) in workload.port_checks


@pytest.mark.parametrize(
    "probe",
    [
        {"exec": {"command": ["true"]}},
        {"tcpSocket": {"port": 80, "host": "192.0.2.1"}},
        {"httpGet": {"port": 80, "host": "192.0.2.1", "path": "/"}},
    ],
)
def test_probes_by_command_and_of_other_hosts_are_unchanged(probe: Mapping[str, Any]) -> None:
    app = {"name": "app", "readinessProbe": probe}
    found = with_transparent_sidecar(web_pod(app), OPTIONS)
    assert found["spec"]["containers"][1] == app
    assert "headgate.dev/probes" not in found["metadata"]["annotations"]


def test_the_headers_of_an_http_probe_stay() -> None:
    headers = [{"name": "Host", "value": "shop.example"}]
    app = {"name": "app", "readinessProbe": {"httpGet": {"port": 80, "path": "/", "httpHeaders": headers}}}
    found = with_transparent_sidecar(web_pod(app), OPTIONS)["spec"]["containers"][1]
    assert found["readinessProbe"]["httpGet"]["httpHeaders"] == headers


def test_the_compiler_reads_the_original_probes_of_an_injected_pod() -> None:
    grpc = {"name": "api", "startupProbe": {"grpc": {"port": 9000, "service": "live"}}}
    found = with_transparent_sidecar(web_pod(APP, grpc), OPTIONS)
    found = {**found, "status": {"podIP": "10.0.0.1", "phase": "Running"}}
    compiled = compile_mesh(snapshot_of({key_of(found): found}), DEFAULTS, {})
    (workload,) = compiled.mesh.workloads
    assert workload.capture == "transparent"
    assert workload.probes == (HealthCheck(name="app/readiness", port=8080, path="/ready?deep=1"),)
    assert workload.port_checks == (
        PortCheck(name="app/liveness", port=8080, period=10, timeout=3),
        PortCheck(name="api/startup", port=9000, grpc=True, service="live", period=10, timeout=1),
    )


@pytest.mark.parametrize("annotation", ["", "{", '{"app/readinessProbe": 1}', "[]"])
def test_a_malformed_probes_annotation_is_read_as_no_probes(annotation: str) -> None:
    found = with_transparent_sidecar(web_pod(), OPTIONS)
    annotations = {**found["metadata"]["annotations"], "headgate.dev/probes": annotation}
    damaged = {**found, "metadata": {**found["metadata"], "annotations": annotations}, "status": {"podIP": "10.0.0.1"}}
    compiled = compile_mesh(snapshot_of({key_of(damaged): damaged}), DEFAULTS, {})
    assert compiled.mesh.workloads[0].probes == ()


def test_only_the_redirection_container_has_capabilities() -> None:
    found = with_transparent_sidecar(web_pod(), OPTIONS)["spec"]
    added = [item["securityContext"]["capabilities"] for item in (found["initContainers"][0], found["containers"][0])]
    assert added == [{"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]}, {"drop": ["ALL"]}]
    assert found["containers"][0]["securityContext"]["runAsNonRoot"] is True


def test_the_token_is_for_headgate_and_bound_to_the_pod() -> None:
    volumes = with_transparent_sidecar(web_pod(), OPTIONS)["spec"]["volumes"]
    (projected,) = [item["projected"] for item in volumes if "projected" in item]
    token = projected["sources"][0]["serviceAccountToken"]
    assert token == {"audience": "headgate", "expirationSeconds": 43200, "path": "token"}
    assert "secret" not in json.dumps(volumes).replace("headgate-secrets", "")
