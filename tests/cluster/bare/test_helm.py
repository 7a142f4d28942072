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


def _configs(obj: Any) -> list[Any]:
    webhooks = obj["webhooks"] if "webhooks" in obj else [obj["spec"]["conversion"]["webhook"]]
    return [webhook["clientConfig"] for webhook in webhooks]


@pytest.fixture
def release(new_cluster: KubeApiServer) -> Release:
    return Release(new_cluster)


@pytest.mark.parametrize("side", [CLIENT_SIDE, "--server-side=true"])
def test_a_release_is_installed_upgraded_uninstalled_and_installed_again(
    release: Release, tmp_path: Path, side: str
) -> None:
    """An upgrade changes a value and a definition, and keeps the CA bundles of the control plane."""
    chart, newer = (shutil.copytree(CHART, tmp_path / name) for name in ("chart", "newer"))
    if side != CLIENT_SIDE:
        for copy in (chart, newer):
            (copy / "templates/apiservice.yaml").unlink()
    release.helm("install", "headgate", chart, "--create-namespace", side)
    assert release.get(DEPLOYMENT)["spec"]["replicas"] == 2
    release.write_bundles()

    definitions = newer / "templates/customresourcedefinition.yaml"
    old = "singular: tlsconfig\n"
    assert old in definitions.read_text()
    definitions.write_text(definitions.read_text().replace(old, f"{old}    shortNames: [tlsc]\n"))
    release.helm("upgrade", "headgate", newer, "--set", "replicas=3", side)
    assert release.get(DEPLOYMENT)["spec"]["replicas"] == 3
    assert release.get(DEFINITION)["spec"]["names"]["shortNames"] == ["tlsc"]
    assert release.bundles() == {BUNDLE}

    release.helm("uninstall", "headgate")
    assert release.is_gone(DEPLOYMENT)
    assert release.is_gone(INJECTION)
    assert release.get(DEFINITION)["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"

    release.helm("install", "headgate", chart, side, *WITHOUT_APIS)
    assert release.get(DEPLOYMENT)["spec"]["replicas"] == 2


def test_a_release_with_custom_metrics_fails_while_another_server_has_them(release: Release) -> None:
    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    other = {"metadata": {"name": "v1beta1.custom.metrics.k8s.io"}, "spec": {**ADAPTER, "version": "v1beta1"}}
    release.cluster.make(path, other)
    enabled = ("--set", "customMetrics.enabled=true", *WITHOUT_APIS)
    options = ("install", "headgate", CHART, "--create-namespace", *enabled, CLIENT_SIDE)
    assert "v1beta1.custom.metrics.k8s.io names the Service monitoring/adapter" in release.helm(*options, fails=True)
    assert release.is_gone(DEPLOYMENT)
    release.cluster.call("DELETE", f"{path}/v1beta1.custom.metrics.k8s.io")
    release.helm(*options)
    found = release.get(f"{path}/v1beta2.custom.metrics.k8s.io")
    assert found["spec"]["service"]["name"] == "headgate"
    values = (*enabled, "--set", "replicas=3", "--dry-run=server")
    assert "replicas: 3" in release.helm("upgrade", *options[1:3], *values)


async def test_helm_takes_over_definitions_of_another_mesh_which_stay_after_the_uninstallation(
    release: Release,
) -> None:
    linkerd = ORIGINS[0]
    release.cluster.make(CONVERTED.rpartition("/")[0], linkerd.definitions[0])
    before = release.get(CONVERTED)
    options = ("headgate", CHART, CLIENT_SIDE, *WITHOUT_APIS)
    assert "invalid ownership metadata" in release.helm("install", *options, "--create-namespace", fails=True)
    release.helm("install", *options, "--create-namespace", "--take-ownership")
    release.helm("upgrade", *options, "--set", "replicas=3")
    definition = release.get(CONVERTED)
    assert len(definition["spec"]["versions"]) == 4
    adopted = json.loads(definition["metadata"]["annotations"]["headgate.dev/adopted"])
    assert adopted == {"labels": {"linkerd.io/extension": "smi"}, "spec": before["spec"]}
    assert "headgate.dev/adopted" not in release.get(DEFINITION)["metadata"]["annotations"]
    async with release.cluster.client() as client:
        objects = manifests(Values(image="headgate:1", budget_version="policy/v1beta1"))
        outcomes = {obj["metadata"]["name"]: outcome async for obj, outcome in Installer(client).delete(objects)}
    assert outcomes[CONVERTED.rpartition("/")[2]].startswith(
        "kept with headgate's content: its objects are stored in v1alpha"
    )
    assert release.get(CONVERTED)["spec"]["conversion"] == {"strategy": "None"}


def test_a_revision_is_a_release_beside_the_installation_and_has_its_options(release: Release) -> None:
    """Its values choose the image and the replicas. Its uninstallation leaves the installation as it was."""
    options = (CHART, "--create-namespace", CLIENT_SIDE, *WITHOUT_APIS)
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

    replaced = release.helm("upgrade", "headgate", CHART, "--reuse-values", "--set", "revision=next", fails=True)
    assert "the release headgate is the installation, which would be deleted" in replaced
    release.helm("uninstall", "headgate-next")
    assert release.is_gone(f"{DEPLOYMENT}-rev-next")
    assert release.is_gone(f"{INJECTION}-rev-next")
    assert release.get(DEPLOYMENT)["spec"] == before
    assert release.get(INJECTION)["webhooks"]


async def test_helm_takes_over_an_installation_by_headgate_install(release: Release) -> None:
    async with release.cluster.client() as client:
        objects = manifests(Values(image="headgate:1", budget_version="policy/v1beta1"))
        async for _ in Installer(client).apply(objects):
            pass
    release.helm("install", "headgate", CHART, "--take-ownership", "--set", "replicas=3", CLIENT_SIDE)
    assert release.get(DEPLOYMENT)["spec"]["replicas"] == 3
    release.helm("uninstall", "headgate")
    assert release.is_gone(DEPLOYMENT)
