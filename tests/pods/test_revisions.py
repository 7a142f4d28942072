"""A revision is tried on one namespace, promoted and removed, under load between this namespace and another one."""

import json
from collections.abc import Mapping, Sequence

import pytest
from tests.pods.conftest import (
    Cluster,
    app_deployment,
    graceful,
    http_service,
    is_deleted,
    mesh_namespace,
    split_in,
    until,
)
from tests.pods.kit import IMAGE, SECOND_IMAGE
from tests.pods.load import failures, load

TRIAL, OTHER = "trial", "beside-trial"
REVISION = "headgate.dev/rev"


def website(cluster: Cluster, place: str) -> None:
    """Create the Service `website` with two versions, and a client."""
    cluster.apply(mesh_namespace(place), http_service(place, "website", app="website-v1"))
    cluster.apply(*(http_service(place, name, app=name) for name in ("website-v1", "website-v2")))
    deployments = [graceful(app_deployment(place, name)) for name in ("website-v1", "website-v2")]
    cluster.apply(*deployments, app_deployment(place, "client", command=["sleep", "infinity"]))


def images(cluster: Cluster, place: str) -> set[str]:
    """Return the images of the sidecars of running pods."""
    pods = [pod for pod in cluster.get("pods", place)["items"] if not is_deleted(pod)]
    containers = [container for pod in pods for container in pod["spec"]["containers"]]
    return {container["image"] for container in containers if container["name"] == "headgate-sidecar"}


def revisions(cluster: Cluster) -> Mapping[str, set[str]]:
    """Return the revisions of the proxies in sync by their namespace."""
    proxies = json.loads(cluster.headgate("proxies", "-o", "json"))["items"]
    by_place: dict[str, set[str]] = {TRIAL: set(), OTHER: set()}
    for proxy in proxies:
        if proxy["status"]["state"] == "InSync":
            by_place.get(proxy["metadata"]["namespace"], set()).add(proxy.get("revision", ""))
    return by_place


def label(cluster: Cluster, text: str) -> Sequence[str]:
    """Set or remove the label of the namespace."""
    return cluster.kubectl("label", "namespace", TRIAL, text, "--overwrite").splitlines()


@pytest.mark.nightly(reason="it has the cluster alone for two minutes; tests/cluster/test_revisions.py shows each part")
def test_a_revision_is_tried_promoted_and_removed_without_a_lost_request(installed: Cluster) -> None:
    cluster, answering = installed, ("website-v1", "website-v2")
    for place in (TRIAL, OTHER):
        website(cluster, place)
    for place in (TRIAL, OTHER):
        cluster.wait_rolled_out(place, *answering, "client")
        cluster.wait_in_sync(place)
    with load(cluster, OTHER, f"website.{TRIAL}") as into:
        cluster.headgate("install", "--revision", "next", "--image", SECOND_IMAGE, "--replicas", 1)
        label(cluster, f"{REVISION}=next")
        until(lambda: _outdated(cluster) == {"website-v1", "website-v2", "client"}, "outdated workloads")
        assert cluster.headgate("restart", "--outdated", "-n", TRIAL).count("restarted") == 3
        assert (images(cluster, TRIAL), images(cluster, OTHER)) == ({SECOND_IMAGE}, {IMAGE})
        until(lambda: revisions(cluster) == {TRIAL: {"next"}, OTHER: {""}}, "proxies in sync")

        with load(cluster, TRIAL, f"website.{OTHER}") as out:
            for place in (TRIAL, OTHER):
                cluster.apply(split_in(place, "canary", "website", website_v1=1, website_v2=1))
                cluster.wait_programmed("trafficsplit/canary", place)
            cluster.headgate("upgrade", "--image", SECOND_IMAGE)
            label(cluster, f"{REVISION}-")
            cluster.headgate("uninstall", "--revision", "next")
            until(lambda: revisions(cluster)[TRIAL] == {""}, "the default revision")
    for counts in (into, out):
        assert failures(counts, *answering) == {}
        assert counts["website-v2"] > 0
    assert _outdated(cluster) == set()  # the default revision has the image of the sidecars now


def _outdated(cluster: Cluster) -> set[str]:
    workloads = cluster.api.call("GET", f"/apis/inspect.headgate.dev/v1beta1/namespaces/{TRIAL}/workloadsidecars")[
        "items"
    ]
    return {each["object"]["name"] for each in workloads if any(pod.get("messages") for pod in each["pods"])}
