"""Installing headgate on a real cluster, installing it again, and removing it."""

import pytest
from tests.pods.conftest import IMAGE, SYSTEM, Cluster, deployment, namespace

KINDS = "customresourcedefinitions,clusterroles,clusterrolebindings,apiservices,mutatingwebhookconfigurations"


def test_an_installation_can_be_repeated_and_removed(installed: Cluster) -> None:
    """A second installation changes nothing, and an uninstallation leaves nothing, once no pod has a sidecar."""
    printed = installed.headgate("install", "--image", IMAGE)
    assert "created" not in printed
    assert "deployment/headgate unchanged" in printed
    installed.apply(namespace("shop"), deployment("shop", "client", command=["sleep", "infinity"]))
    installed.wait_rolled_out("shop", "client")
    with pytest.raises(AssertionError, match=r"1 pod still has a sidecar: shop/client-"):
        installed.headgate("uninstall")
    installed.kubectl("delete", "namespace", "shop")
    installed.headgate("uninstall")
    installed.kubectl("wait", "--for=delete", f"namespace/{SYSTEM}", "--timeout=100s")
    names = installed.kubectl("get", KINDS, "-o", "name")
    assert "headgate" not in names
    assert "smi-spec.io" not in names
