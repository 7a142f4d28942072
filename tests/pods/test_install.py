"""Installing headgate on a real cluster, installing it again, and removing it."""

import pytest
from tests.pods.conftest import IMAGE, SYSTEM, Cluster, deployment, namespace, until


def leftovers(cluster: Cluster) -> list[str]:
    """Return the names of all objects of headgate and the SMI in a cluster, except Events."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    listed = ",".join(kind for kind in kinds if not kind.startswith("events"))
    names = cluster.kubectl("get", listed, "--all-namespaces", "-o", "name").splitlines()
    return [name for name in names if "headgate" in name or "smi-spec.io" in name]


def test_an_installation_can_be_repeated_and_removed(installed: Cluster) -> None:
    """A second installation changes nothing, and an uninstallation leaves nothing, once no pod has a sidecar."""
    printed = installed.headgate("install", "--image", IMAGE)
    assert "created" not in printed
    assert "deployment/headgate unchanged" in printed
    installed.apply(namespace("shop"), deployment("shop", "client", command=["sleep", "infinity"]))
    installed.wait_rolled_out("shop", "client")
    with pytest.raises(AssertionError, match=r"1 pod still has a sidecar: shop/client-"):
        installed.headgate("uninstall")
    installed.kubectl("-n", "shop", "delete", "deployment/client")
    until(lambda: installed.headgate("uninstall"))  # once the pod is gone
    installed.kubectl("wait", "--for=delete", f"namespace/{SYSTEM}", "--timeout=240s")
    assert leftovers(installed) == []
