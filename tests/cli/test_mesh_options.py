"""The options of a mesh on a cluster."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.processes import Ran

from headgate.kubernetes.credentials import InCluster
from headgate.kubernetes.options import Options
from headgate.options import OPTIONS, IssuerRef, MeshOptions

PROXY = {
    "proxy-cpu": "50m",
    "proxy-memory": "96Mi",
    "proxy-cpu-limit": "2",
    "proxy-memory-limit": "512Mi",
    "proxy-concurrency": "2",
    "proxy-log-level": "info",
}
"""Options of proxies."""


def pod_spec_in(text: str) -> Any:
    return next(item for item in yaml.load_all(text, yaml.CSafeLoader) if item["kind"] == "Deployment")["spec"][
        "template"
    ]["spec"]


def test_install_sets_the_image_pull_secrets_and_the_option_of_the_control_plane(run: Callable[..., Ran]) -> None:
    ran = run("install", "--dry-run", "--pull-secrets", "registry,mirror.example")
    pod = pod_spec_in(ran.out)
    assert pod["imagePullSecrets"] == [{"name": "registry"}, {"name": "mirror.example"}]
    assert "--pull-secrets=registry,mirror.example" in pod["containers"][0]["args"]
    assert "imagePullSecrets" not in pod_spec_in(run("install", "--dry-run").out)


def test_every_option_that_install_offers_reaches_the_control_plane(
    run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control plane gets the arguments of the installed Deployment, and starts with these options."""
    texts = {
        "mtls": "strict",
        "access": "deny",
        "outbound": "refuse",
        "trust-domain": "mesh.example",
        "otlp-traces": "collector:4317",
        "trace-sampling": "0.5",
        "sidecars": "all",
        "namespaces": "shop,pay",
        "pull-secrets": "registry",
        **PROXY,
        "cert-manager-issuer": "ClusterIssuer/mesh",
        "metrics-by": "pod",
        "metrics-source": "prometheus=http://prometheus:9090",
        "otlp-collector": "collector:4318",
        "nginx-image": "registry.example/nginx:1",
    }
    flags = {"--custom-metrics", "--external-metrics", "--aggregated-apis", "--node-agent"}
    assert {f"--{name}" for name in texts} | flags == {declared.flag for declared in OPTIONS.values()}
    options = [*(f"--{name}={text}" for name, text in texts.items()), "--custom-metrics", "--no-aggregated-apis"]
    options += ["--external-metrics", "--node-agent"]
    container = pod_spec_in(run("install", "--dry-run", *options).out)["containers"][0]
    started: list[Options] = []

    async def start(options: Options, _access: InCluster) -> None:
        started.append(options)

    monkeypatch.setattr("headgate.cli.control_plane.run", start)
    monkeypatch.setenv("POD_NAME", "headgate-1")
    monkeypatch.setenv("HEADGATE_IMAGE", "headgate:1")
    assert run(*container["command"][1:], *container["args"]).code == 0
    assert started[0].settings.gateway_pods
    assert started[0].mesh == MeshOptions(
        mtls="strict",
        access="deny",
        outbound="refuse",
        trust_domain="mesh.example",
        otlp_traces="collector:4317",
        trace_sampling=50,
        sidecars="all",
        namespaces=("shop", "pay"),
        pull_secrets=("registry",),
        cert_manager_issuer=IssuerRef(name="mesh", kind="ClusterIssuer"),
        custom_metrics=True,
        external_metrics=True,
        aggregated_apis=False,
        node_agent=True,
        metrics_by="pod",
        metrics_source="http://prometheus:9090",
        otlp_collector="collector:4318",
        nginx_image="registry.example/nginx:1",
        **{name.replace("-", "_"): text for name, text in PROXY.items()},
    )


def test_the_page_about_clusters_has_every_option_with_its_default() -> None:
    """An empty cell is the default of an option that is named by what it turns off."""
    page = (Path(__file__).parents[2] / "docs/tasks/kubernetes.md").read_text()
    table = page.partition("| Option of `install` |")[2].partition("\n\n")[0]
    defaults: dict[str, str] = {}
    for row in table.splitlines()[2:]:
        flags, texts, _ = (cell.strip() for cell in row.strip("|").split("|", 2))
        defaults |= zip(re.findall(r"--[\w-]+", flags), texts.split(", "), strict=True)
    expected = {declared.flag: declared.text or "none" for declared in OPTIONS.values()}
    expected |= dict.fromkeys(("--node-agent", "--custom-metrics", "--external-metrics"), "no")
    expected |= {"--namespaces": "all", "--no-aggregated-apis": "", "--replicas": "2", "--revision": "none"}
    del expected["--aggregated-apis"]
    assert defaults.pop("--image")
    assert defaults == expected


@pytest.mark.parametrize("value", ["Registry", "a, b", "a,,b", ","])
def test_invalid_names_of_pull_secrets_are_rejected(run: Callable[..., Ran], value: str) -> None:
    ran = run("install", "--dry-run", "--pull-secrets", value)
    assert ran.code == 2
    assert "is not the name of a Secret; write names separated by commas, without spaces" in ran.err


def test_install_passes_the_issuer_and_allows_certificate_requests(run: Callable[..., Ran]) -> None:
    ran = run("install", "--dry-run", "--cert-manager-issuer", "ClusterIssuer/mesh")
    assert "--cert-manager-issuer=ClusterIssuer/mesh" in pod_spec_in(ran.out)["containers"][0]["args"]
    assert "certificaterequests" in ran.out
    assert "certificaterequests" not in run("install", "--dry-run").out


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("mesh", "'mesh' is not an issuer; write Issuer/NAME or ClusterIssuer/NAME"),
        ("Issuer/", "'Issuer/' is not an issuer"),
        ("issuer/mesh", "issuer is not a cert-manager kind; write Issuer, ClusterIssuer or KIND.GROUP"),
    ],
)
def test_an_invalid_issuer_is_rejected(run: Callable[..., Ran], value: str, message: str) -> None:
    ran = run("install", "--dry-run", "--cert-manager-issuer", value)
    assert ran.code == 2
    assert message in " ".join(ran.err.split())


def test_install_gives_the_namespaces_to_the_control_plane_and_roles_only_there(run: Callable[..., Ran]) -> None:
    ran = run("install", "--dry-run", "--namespaces", "shop,pay,shop")
    assert "--namespaces=shop,pay" in pod_spec_in(ran.out)["containers"][0]["args"]
    found = [item for item in yaml.load_all(ran.out, yaml.CSafeLoader) if item["kind"] in {"Role", "ClusterRole"}]
    with_secrets = [item["metadata"] for item in found if "secrets" in str(item["rules"])]
    assert {item.get("namespace") for item in with_secrets} == {"shop", "pay", "headgate-system"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("shop, pay", "' pay' is not the name of a namespace; write names separated by commas, without spaces"),
        ("Shop", "'Shop' is not the name of a namespace"),
        ("shop,kube-system", "kube-system can't belong to the mesh; remove it"),
    ],
)
def test_names_that_can_not_belong_to_the_mesh_are_rejected(run: Callable[..., Ran], value: str, message: str) -> None:
    ran = run("install", "--dry-run", "--namespaces", value)
    assert ran.code == 2
    assert message in " ".join(ran.err.split())


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--image", "", "'' is not the name of an image; write REGISTRY/NAME:TAG"),
        ("--image", "headgate: 1", "'headgate: 1' is not the name of an image"),
        ("--trust-domain", "Shop.Example", "'Shop.Example' is not a trust domain; write it like a DNS name"),
    ],
)
def test_an_installation_rejects_an_invalid_image_or_trust_domain(
    run: Callable[..., Ran], option: str, value: str, message: str
) -> None:
    ran = run("install", "--dry-run", option, value)
    assert ran.code == 2
    assert message in " ".join(ran.err.split())


def test_install_passes_the_options_of_telemetry(run: Callable[..., Ran]) -> None:
    telemetry = [
        "--metrics-by=pod",
        "--metrics-source=prometheus=https://prometheus.monitoring:9090/base",
        "--otlp-collector=collector.monitoring:4317",
        "--otlp-traces=collector.monitoring:4318",
        "--trace-sampling=0.5",
    ]
    assert set(telemetry) <= {*pod_spec_in(run("install", "--dry-run", *telemetry).out)["containers"][0]["args"]}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--otlp-collector=http://collector.monitoring:4317", "write HOST:PORT without http://"),
        ("--otlp-collector=collector.monitoring", "'collector.monitoring' is not the address of a collector"),
        ("--otlp-collector=collector.monitoring:65536", "is not the address of a collector"),
        ("--otlp-traces=http://collector.monitoring:4317", "write HOST:PORT without http://"),
        ("--trace-sampling=half", "must be a percentage from 0 to 100 with at most two decimals"),
        ("--metrics-source=http://prometheus:9090", "is not a source of metrics: write prometheus=http://HOST:PORT"),
        ("--metrics-source=prometheus=http://me:secret@prometheus:9090", "must not have a password"),
        ("--metrics-by=service", "'service' is not one of"),
    ],
)
@pytest.mark.parametrize("command", ["install --dry-run", "control-plane --image headgate:1"])
def test_a_wrong_option_of_telemetry_is_rejected(
    run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, command: str, option: str, message: str
) -> None:
    monkeypatch.setenv("POD_NAME", "headgate-1")
    ran = run(*command.split(), option)
    assert ran.code == 2
    assert message in " ".join(ran.err.split())
    assert option.partition("=")[0] in ran.err
    assert "secret" not in ran.err
