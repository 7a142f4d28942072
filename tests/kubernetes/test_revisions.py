"""Revisions beside the default one: which one injects a pod, which pods are outdated, and labels of missing revisions."""

import asyncio
from typing import Any

import pytest
from tests.make.objects import deployment, namespace, pod

from headgate.admission.injection import PodNamespace, decision_message
from headgate.admission.outdated_sidecars import outdated_messages
from headgate.admission.sidecar_containers import SidecarOptions, transparent_sidecars
from headgate.compiler.reasons import Reason
from headgate.kubernetes.client import ApiServer
from headgate.kubernetes.revisions import ControlPlaneTokens, InstalledRevisions, beside_revisions, missing_revisions
from headgate.latest import Latest, until
from headgate.plane.feed import snapshot_of
from headgate.resources.meta import Object
from headgate.resources.registry import key_of
from headgate.standalone.store.memory import MemoryStore

INSTALLED = Latest(frozenset({"canary"}))
XDS = "headgate.headgate-system.svc:15010"
DEFAULT = transparent_sidecars("labelled", SidecarOptions(image="headgate:1", xds=XDS))
NEXT = transparent_sidecars("labelled", SidecarOptions(image="headgate:2", xds=XDS, revision="canary"))


def labelled(**labels: str) -> PodNamespace:
    """Return a namespace whose pods get sidecars, with further labels `headgate.dev/KEY`."""
    return PodNamespace({f"headgate.dev/{key}": text for key, text in {"inject": "true", **labels}.items()}, ())


@pytest.mark.parametrize(("revision", "injected"), [("", True), ("canary", False), ("removed", True)])
def test_the_default_revision_leaves_namespaces_to_installed_revisions_only(revision: str, injected: bool) -> None:
    """A label that names no installed revision leaves no pod without a sidecar."""
    around = labelled(rev=revision) if revision else labelled()
    assert beside_revisions(DEFAULT, INSTALLED).decide(pod("web"), around).injected is injected
    predicted = beside_revisions(DEFAULT, INSTALLED, predicts=True).decide(pod("web"), around)
    assert predicted.injected
    if not injected:
        assert decision_message(predicted, "shop") == (
            "the label headgate.dev/rev of the namespace shop names the revision canary, which injects its sidecars"
        )


def test_the_label_of_a_revision_gives_no_sidecar_to_a_pod_that_would_get_none() -> None:
    around = PodNamespace({"headgate.dev/rev": "canary"}, ())
    assert not beside_revisions(DEFAULT, INSTALLED, predicts=True).decide(pod("web"), around).injected


async def test_the_default_revision_leaves_namespaces_only_to_revisions_with_an_available_replica() -> None:
    """While a revision is installed or removed, its webhook does not answer yet or no longer. It still configures its proxies."""
    store, revisions = MemoryStore(), InstalledRevisions()
    deployments = {name: deployment(f"headgate-rev-{name}", namespace="headgate-system") for name in ("canary", "next")}
    await store.create(namespace("headgate-system"))
    following = asyncio.create_task(revisions.run(store))
    try:
        for name, obj in deployments.items():
            obj["metadata"]["labels"] = {"headgate.dev/rev": name}
            obj["spec"]["template"]["spec"]["containers"] = [{"name": "headgate", "image": f"headgate:{name}"}]
            deployments[name] = await store.create(obj)
        await store.update({**deployments["canary"], "status": {"availableReplicas": 1}}, subresource="status")
        await until(lambda: revisions.available.get() == {"canary"}, revisions.available)
        await until(lambda: revisions.names.get() == {"canary", "next"}, revisions.names)
        assert revisions.images == {"canary": "headgate:canary", "next": "headgate:next"}
        sidecars = beside_revisions(DEFAULT, revisions.available)
        assert [sidecars.decide(pod("web"), labelled(rev=name)).injected for name in deployments] == [False, True]
        await store.delete(key_of(deployments["canary"]))
        await until(lambda: not revisions.available.get(), revisions.available)
        assert sidecars.decide(pod("web"), labelled(rev="canary")).injected
    finally:
        following.cancel()


def stored(sidecars: Any) -> Object:
    made: Object = sidecars.create(pod("web"), labelled(), True)
    return made


def test_a_pod_names_the_revision_that_has_injected_it_and_a_copy_does_not() -> None:
    assert stored(NEXT)["metadata"]["annotations"]["headgate.dev/rev"] == "canary"
    copied = pod("web", annotations={"headgate.dev/rev": "canary"})
    assert "headgate.dev/rev" not in DEFAULT.create(copied, labelled(), True)["metadata"]["annotations"]


def test_pods_are_outdated_until_they_are_of_the_revision_of_their_namespace() -> None:
    sidecars = beside_revisions(DEFAULT, INSTALLED, predicts=True)
    assert outdated_messages(stored(DEFAULT), sidecars, labelled()) == ()
    assert outdated_messages(stored(DEFAULT), sidecars, labelled(rev="canary")) == ("revision default, now canary",)
    assert outdated_messages(stored(NEXT), sidecars, labelled(rev="canary")) == ()
    (message,) = outdated_messages(
        stored(NEXT), sidecars._replace(image_of={"canary": "headgate:3"}.__getitem__), labelled(rev="canary")
    )
    assert message == "image headgate:2, now headgate:3"
    (message,) = outdated_messages(stored(NEXT), sidecars, labelled())
    assert message == "image headgate:2, now headgate:1"


def test_a_namespace_with_the_label_of_a_missing_revision_has_a_finding() -> None:
    places = [
        namespace("shop", labels={"headgate.dev/rev": "canary"}),
        namespace("bank", labels={"headgate.dev/rev": "old"}),
    ]
    snapshot = snapshot_of({key_of(obj): obj for obj in (*places, namespace("plain"))})
    (finding,) = missing_revisions(snapshot, INSTALLED.get())
    assert (finding.about.name, finding.reason) == ("bank", Reason.REVISION_NOT_FOUND)
    assert finding.message.startswith("the revision old is not installed, so the default one serves the namespace")


class Reviewer(ApiServer):
    """An API server that knows one token, and counts reviews."""

    def __init__(self, username: str) -> None:
        self.username = username
        self.reviews = 0

    async def create(self, _path: str, body: Any) -> Any:
        self.reviews += 1
        is_valid = body["spec"]["token"] == "valid"
        return {"status": {"authenticated": is_valid, "user": {"username": self.username}}}


async def test_only_the_control_planes_token_may_request_configurations() -> None:
    own = Reviewer("system:serviceaccount:headgate-system:headgate")
    tokens = ControlPlaneTokens(own)
    assert [await tokens.is_valid(text) for text in ("", "Bearer ", "Bearer wrong")] == [False] * 3
    assert await tokens.is_valid("Bearer valid")
    assert await tokens.is_valid("Bearer valid")
    assert own.reviews == 2  # a valid token is reviewed once a minute
    assert not await ControlPlaneTokens(Reviewer("system:serviceaccount:shop:headgate")).is_valid("Bearer valid")
