"""The Helm chart on a real API server: Helm installs it, upgrades its values and definitions, and uninstalls it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.api_server import KubeApiServer
from tests.helm import CHART, helm
from tests.make.smi_definitions import ORIGINS

from headgate.kubernetes.install.installer import Installer
from headgate.kubernetes.install.manifests import Values, manifests

CLIENT_SIDE = "--server-side=false"  # API servers of Kubernetes 1.20 panic when an APIService is applied on the server
SERVER_SIDE = "--server-side=true"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tlsconfigs.headgate.dev"
CONVERTED = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trafficsplits.split.smi-spec.io"
DEPLOYMENT = "/apis/apps/v1/namespaces/headgate-system/deployments/headgate"
INJECTION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/headgate"
ADAPTER = {
    "group": "custom.metrics.k8s.io",
    "service": {"namespace": "monitoring", "name": "adapter", "port": 443},
    "insecureSkipTLSVerify": True,
    "groupPriorityMinimum": 100,
    "versionPriority": 100,
}
BUNDLE = "cm9vdHM="
INSTALLATION = manifests(Values(image="headgate:1", budget_version="policy/v1beta1"))
WITHOUT_APIS = ("--set", "aggregatedApis=false")
"""Each change to an APIService costs the API server half a second of processor time."""


class Release:
    """The release of the chart on an API server without headgate."""

    def __init__(self, cluster: KubeApiServer) -> None:
        self.cluster = cluster
        self._kubeconfig = cluster.kubeconfig()

    def helm(self, *arguments: object, fails: bool = False) -> str:
        place = ("--namespace", "headgate-system", "--kubeconfig", self._kubeconfig)
        return helm(*arguments, *place, fails=fails)

    def get(self, path: str) -> Any:
        status, found = self.cluster.call("GET", path)
        assert status == 200, (path, found)
        return found

    def is_gone(self, path: str) -> bool:
        return self.cluster.call("GET", path)[0] == 404

    def write_bundles(self) -> None:
        """Write a CA bundle into webhooks and a definition, as the control plane does."""
        for path in (INJECTION, CONVERTED):
            found = self.get(path)
            for config in _configs(found):
                config["caBundle"] = BUNDLE
            status, answer = self.cluster.call("PUT", path, found)
            assert status == 200, answer

    def bundles(self) -> set[str]:
        """Return the CA bundles of these webhooks and this definition; an empty string for a missing bundle."""
        return {config.get("caBundle", "") for path in (INJECTION, CONVERTED) for config in _configs(self.get(path))}


def name_in(path: str) -> str:
    """Return the name of the object at a path."""
    return path.rpartition("/")[2]


def _configs(obj: Any) -> list[Any]:
    webhooks = obj["webhooks"] if "webhooks" in obj else [obj["spec"]["conversion"]["webhook"]]
    return [webhook["clientConfig"] for webhook in webhooks]


def chart_with_definitions(place: Path, *names: str) -> Path:
    """Copy the chart with some of its definitions only, which a release treats like all; return its path.

    To store and publish nine definitions takes the API server two seconds of processor time.
    """
    chart = shutil.copytree(CHART, place)
    file = chart / "templates/customresourcedefinition.yaml"
    start, end = "{{- if not .Values.revision }}\n", "{{- end }}\n"
    definitions = file.read_text().partition(start)[2].removesuffix(end).split("\n---\n")
    kept = [text for name in names for text in definitions if f"\n  name: {name}\n" in text]
    assert len(kept) == len(names)
    file.write_text(start + "\n---\n".join(kept) + "\n" + end)
    return chart


@pytest.fixture
def release(new_cluster: KubeApiServer) -> Release:
    """The release of the whole chart, or with its APIServices, which an API server takes long to remove."""
    return Release(new_cluster)


@pytest.fixture
def small_release(cluster: KubeApiServer) -> Release:
    """The release of a chart with one or two definitions and without APIServices, which are removed after the test."""
    return Release(cluster)


async def test_helm_takes_over_an_installation_upgrades_it_uninstalls_it_and_installs_it_again(
    release: Release, tmp_path: Path
) -> None:
    names = [name_in(path) for path in (DEFINITION, CONVERTED)]
    objects = [obj for obj in INSTALLATION if obj["kind"] != "CustomResourceDefinition" or _name(obj) in names]
    async with release.cluster.client() as client:
        async for _ in Installer(client).apply(objects):
            pass
    chart = chart_with_definitions(tmp_path / "chart", *names)
    release.helm("install", "headgate", chart, "--take-ownership", "--set", "replicas=1", CLIENT_SIDE)
    assert release.get(DEPLOYMENT)["spec"]["replicas"] == 1
    assert_upgraded_and_uninstalled(release, chart, CLIENT_SIDE)
    release.helm("install", "headgate", CHART, CLIENT_SIDE, *WITHOUT_APIS)
    assert release.get(DEPLOYMENT)["spec"]["replicas"] == 2
    release.helm("upgrade", "headgate", CHART, CLIENT_SIDE, *WITHOUT_APIS, "--set", "replicas=3")
    assert release.get(DEPLOYMENT)["spec"]["replicas"] == 3


def _name(obj: Any) -> str:
    return str(obj["metadata"]["name"])


def test_a_release_is_applied_on_the_server(small_release: Release, tmp_path: Path) -> None:
    release = small_release
    chart = chart_with_definitions(tmp_path / "chart", *map(name_in, (DEFINITION, CONVERTED)))
    (chart / "templates/apiservice.yaml").unlink()
    release.helm("install", "headgate", chart, "--create-namespace", SERVER_SIDE)
    assert release.get(DEPLOYMENT)["spec"]["replicas"] == 2
    assert_upgraded_and_uninstalled(release, chart, SERVER_SIDE)


def assert_upgraded_and_uninstalled(release: Release, chart: Path, side: str) -> None:
    """Change a value and a definition by an upgrade, which keeps the control plane's CA bundles; uninstall all but definitions."""
    release.write_bundles()
    definitions = chart / "templates/customresourcedefinition.yaml"
    old = "singular: tlsconfig\n"
    assert old in definitions.read_text()
    definitions.write_text(definitions.read_text().replace(old, f"{old}    shortNames: [tlsc]\n"))
    release.helm("upgrade", "headgate", chart, "--set", "replicas=3", side)
    assert release.get(DEPLOYMENT)["spec"]["replicas"] == 3
    assert release.get(DEFINITION)["spec"]["names"]["shortNames"] == ["tlsc"]
    assert release.bundles() == {BUNDLE}

    release.helm("uninstall", "headgate")
    assert release.is_gone(DEPLOYMENT)
    assert release.is_gone(INJECTION)
    assert release.get(DEFINITION)["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


async def test_helm_takes_over_definitions_but_no_custom_metrics_of_another_server(
    release: Release, tmp_path: Path
) -> None:
    """The definitions stay after an uninstallation."""
    chart = chart_with_definitions(tmp_path / "chart", *map(name_in, (DEFINITION, CONVERTED)))
    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    other = {"metadata": {"name": "v1beta1.custom.metrics.k8s.io"}, "spec": {**ADAPTER, "version": "v1beta1"}}
    release.cluster.make(path, other)
    linkerd = ORIGINS[0]
    release.cluster.make(CONVERTED.rpartition("/")[0], linkerd.definitions[0])
    before = release.get(CONVERTED)
    options = ("headgate", chart, CLIENT_SIDE, "--set", "customMetrics.enabled=true", *WITHOUT_APIS)
    install = ("install", *options, "--create-namespace")
    assert "v1beta1.custom.metrics.k8s.io names the Service monitoring/adapter" in release.helm(*install, fails=True)
    assert release.is_gone(DEPLOYMENT)
    release.cluster.call("DELETE", f"{path}/v1beta1.custom.metrics.k8s.io")
    assert "invalid ownership metadata" in release.helm(*install, fails=True)
    release.helm(*install, "--take-ownership")
    metrics = release.get(f"{path}/v1beta2.custom.metrics.k8s.io")
    assert metrics["spec"]["service"]["name"] == "headgate"
    release.helm("upgrade", *options, "--set", "replicas=3")
    assert release.get(DEPLOYMENT)["spec"]["replicas"] == 3

    definition = release.get(CONVERTED)
    assert len(definition["spec"]["versions"]) == 4
    adopted = json.loads(definition["metadata"]["annotations"]["headgate.dev/adopted"])
    assert adopted == {"labels": {"linkerd.io/extension": "smi"}, "spec": before["spec"]}
    assert "headgate.dev/adopted" not in release.get(DEFINITION)["metadata"]["annotations"]
    async with release.cluster.client() as client:
        outcomes = {obj["metadata"]["name"]: outcome async for obj, outcome in Installer(client).delete(INSTALLATION)}
    assert outcomes[name_in(CONVERTED)].startswith("kept with headgate's content: its objects are stored in v1alpha")
    assert release.get(CONVERTED)["spec"]["conversion"] == {"strategy": "None"}


def test_a_revision_is_a_release_beside_the_installation_and_has_its_options(
    small_release: Release, tmp_path: Path
) -> None:
    """Its values choose the image and the replicas. Its uninstallation leaves the installation as it was."""
    release = small_release
    chart = chart_with_definitions(tmp_path / "chart", name_in(DEFINITION))
    options = (chart, "--create-namespace", CLIENT_SIDE, *WITHOUT_APIS)
    new = ("install", "headgate-next", *options, "--set", "revision=next,image.tag=2.0,replicas=1,mtls=permissive")
    assert "headgate is not installed on this cluster" in release.helm(*new, fails=True)
    for name in ("shop", "pay"):
        release.cluster.namespace(name)
    values = "mtls=strict,namespaces={shop,pay},imagePullSecrets[0].name=registry"
    release.helm("install", "headgate", *options, "--set", values)
    before = release.get(DEPLOYMENT)["spec"]
    release.helm(*new)

    deployment = release.get(f"{DEPLOYMENT}-rev-next")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (installed,) = before["template"]["spec"]["containers"]
    assert container["args"] == [*installed["args"], "--revision", "next"]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert (deployment["spec"]["replicas"], container["image"].rpartition(":")[2]) == (1, "2.0")
    for webhook in release.get(f"{INJECTION}-rev-next")["webhooks"]:
        selected = {each["key"]: each["values"] for each in webhook["namespaceSelector"]["matchExpressions"]}
        assert (selected["headgate.dev/rev"], selected["kubernetes.io/metadata.name"]) == (["next"], ["shop", "pay"])

    replaced = release.helm("upgrade", "headgate", chart, "--reuse-values", "--set", "revision=next", fails=True)
    assert "the release headgate is the installation, which would be deleted" in replaced
    release.helm("uninstall", "headgate-next")
    assert release.is_gone(f"{DEPLOYMENT}-rev-next")
    assert release.is_gone(f"{INJECTION}-rev-next")
    assert release.get(DEPLOYMENT)["spec"] == before
    assert release.get(INJECTION)["webhooks"]
