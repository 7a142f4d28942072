"""The init container of a sidecar, which needs capabilities only without the node agent."""

from collections.abc import Mapping

import pytest
from msgspec import structs
from tests.admission.stored_view import SHOP
from tests.admission.web_pod import APP, OPTIONS, web_pod
from tests.make.objects import Object, namespace, pod
from tests.pod_security import violations

from headgate.admission.redirection_container import requested_redirection
from headgate.admission.sidecar_containers import with_transparent_sidecar
from headgate.errors import Invalid
from headgate.resources.core.namespace import namespace_causes
from headgate.resources.core.pod import pod_causes

AGENT = structs.replace(OPTIONS, node_agent=True)
REDIRECTION = "headgate.dev/redirection"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def waiting(obj: Object, **state: Mapping[str, str]) -> Object:
    """Return a pod whose init container has a state, for example `running`."""
    status = {"name": "headgate-redirect", "containerID": "containerd://1", "state": state}
    return {**obj, "status": {"initContainerStatuses": [status]}}


@pytest.mark.parametrize("native", [False, True])
def test_with_the_node_agent_a_namespace_with_the_level_restricted_admits_the_pod(native: bool) -> None:
    """R76. The application satisfies the level itself."""
    options = structs.replace(AGENT, native=native)
    spec = with_transparent_sidecar(web_pod({**APP, "securityContext": RESTRICTED}), options)["spec"]
    assert list(violations(spec)) == []
    privileged = with_transparent_sidecar(web_pod({**APP, "securityContext": RESTRICTED}), OPTIONS)["spec"]
    assert {text.partition(":")[0] for text in violations(privileged)} == {"headgate-redirect"}


@pytest.mark.parametrize(
    ("by_default", "of_namespace", "of_pod", "by_agent"),
    [
        (False, "", "", False),
        (True, "", "", True),
        (False, "node-agent", "", True),
        (True, "init-container", "", False),
        (False, "node-agent", "init-container", False),
        (True, "init-container", "node-agent", True),
        (True, "none", "", True),
    ],
)
def test_annotations_of_namespace_and_pod_replace_the_option(
    by_default: bool, of_namespace: str, of_pod: str, by_agent: bool
) -> None:
    """A wrong value has no effect."""
    options = structs.replace(OPTIONS, node_agent=by_default)
    own = pod("web-1", namespace=SHOP, annotations={REDIRECTION: of_pod} if of_pod else {})
    injected = with_transparent_sidecar(own, options, namespace={REDIRECTION: of_namespace} if of_namespace else {})
    (container,) = injected["spec"]["initContainers"]
    assert ("add" not in container["securityContext"]["capabilities"]) is by_agent


def test_wrong_annotations_are_mistakes() -> None:
    wrong = {REDIRECTION: "agent"}
    for causes in (namespace_causes(namespace(SHOP, annotations=wrong)), pod_causes(pod("web-1", annotations=wrong))):
        assert [str(cause) for cause in Invalid(*causes).causes] == [
            f"metadata.annotations.{REDIRECTION}: must be init-container or node-agent, not 'agent'"
        ]


def test_the_agent_reads_what_the_privileged_init_container_gets_in_variables() -> None:
    excluded = {"headgate.dev/excluded-inbound-ports": "9090"}
    own = pod("web-1", namespace=SHOP, annotations=excluded, metadata={"uid": "u-1"})
    requested = requested_redirection(waiting(with_transparent_sidecar(own, AGENT, 1342), running={}))
    assert requested == (f"{SHOP}/web-1", "u-1", "containerd://1", "1342", "9090")


def test_only_a_running_init_container_that_has_no_privileges_requests_the_redirection() -> None:
    """Before it runs, earlier init containers use the network directly. After its end the redirection holds."""
    injected = with_transparent_sidecar(web_pod(), AGENT)
    for pod_without_request in (
        injected,
        waiting(injected, waiting={}),
        waiting(injected, terminated={}),
        waiting(with_transparent_sidecar(web_pod(), OPTIONS), running={}),
        web_pod(),
    ):
        assert requested_redirection(pod_without_request) is None
