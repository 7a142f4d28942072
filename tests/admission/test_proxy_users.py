"""The users of sidecars on a cluster: many of them, and none of an application."""

from collections import Counter
from typing import Any

import pytest
from tests.admission.web_pod import APP, OPTIONS, web_pod
from tests.make.objects import Object

from headgate.admission.injection import PodNamespace
from headgate.admission.offline_injection import inject_manifest
from headgate.admission.proxy_users import PROXY_USERS
from headgate.admission.sidecar_containers import transparent_sidecars, with_transparent_sidecar
from headgate.inotify import ENVOY_INSTANCES

FIRST = PROXY_USERS[0]
INSTANCES, PODS = 128, 250
"""The inotify instances of a user, by the default of most kernels, and the pods of a large node."""


def proxy_users_of(pod: Object) -> tuple[int, str]:
    """Return the user of a pod's sidecar, and the one whose connections are not redirected."""
    (redirection,) = (item for item in pod["spec"]["initContainers"] if item["name"] == "headgate-redirect")
    (excepted,) = (entry["value"] for entry in redirection["env"] if entry["name"] == "HEADGATE_PROXY_USER")
    (sidecar,) = (item for item in pod["spec"]["containers"] if item["name"] == "headgate-sidecar")
    context = sidecar["securityContext"]
    assert context["runAsUser"] == context["runAsGroup"]
    return context["runAsUser"], excepted


def test_the_sidecars_of_a_node_share_the_inotify_instances_of_many_users() -> None:
    sidecars = transparent_sidecars("all", OPTIONS)
    around = PodNamespace(labels={}, configs=())
    pods = Counter(proxy_users_of(sidecars.create(web_pod(), around, True))[0] for _ in range(PODS))
    assert max(pods.values()) * ENVOY_INSTANCES <= INSTANCES


@pytest.mark.parametrize(
    "fields",
    [
        {"securityContext": {"runAsUser": FIRST}},
        {"containers": [{**APP, "securityContext": {"runAsUser": FIRST}}]},
        {"initContainers": [{"name": "setup", "securityContext": {"runAsUser": FIRST}}]},
    ],
    ids=["pod", "container", "init container"],
)
def test_a_sidecar_has_another_user_than_its_application(fields: dict[str, Any]) -> None:
    """The connections of the proxy's user are not redirected, so an application that had it would bypass the mesh."""
    pod = web_pod()
    pod = {**pod, "spec": {**pod["spec"], **fields}}
    assert proxy_users_of(with_transparent_sidecar(pod, OPTIONS, FIRST)) == (FIRST + 1, str(FIRST + 1))


def test_users_that_are_taken_are_all_passed_over() -> None:
    taken = [{"name": f"app-{user}", "securityContext": {"runAsUser": user}} for user in PROXY_USERS]
    user, excepted = proxy_users_of(with_transparent_sidecar(web_pod(*taken), OPTIONS, FIRST))
    assert user not in PROXY_USERS
    assert excepted == str(user)


def test_a_manifest_always_gets_the_same_user_and_different_manifests_mostly_different_ones() -> None:
    pods = [{**web_pod(), "metadata": {"name": f"web-{number}"}} for number in range(40)]
    users = [proxy_users_of(inject_manifest(pod, OPTIONS).object) for pod in pods]
    assert users == [proxy_users_of(inject_manifest(pod, OPTIONS).object) for pod in pods]
    assert len(set(users)) > len(PROXY_USERS) // 2
