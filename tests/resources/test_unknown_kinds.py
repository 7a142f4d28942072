"""Unknown kinds: misspelled ones are mistakes, foreign ones are left out."""

import pytest
from tests.make.definitions import definition

from headgate.kinds import MESH, NAMES
from headgate.resources.custom.kinds import with_definitions
from headgate.resources.registry import BUILT_IN
from headgate.resources.unknown_kinds import is_foreign, unknown_kind


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("monitoring.coreos.com/v1", "ServiceMonitor"),
        ("cert-manager.io/v1", "Certificate"),
        ("flagger.app/v1beta1", "Canary"),
        ("networking.istio.io/v1", "VirtualService"),
        ("serving.knative.dev/v1", "Service"),
        ("snapshot.storage.k8s.io/v1", "VolumeSnapshot"),
        ("gateway.networking.k8s.io/v1alpha3", "NotYetKnown"),
        ("resource.k8s.io/v1alpha9", "NotYetKnown"),
    ],
)
def test_a_kind_of_another_project_is_foreign(version: str, kind: str) -> None:
    assert is_foreign({"apiVersion": version, "kind": kind}, BUILT_IN)


@pytest.mark.parametrize(
    ("version", "kind", "field", "text"),
    [
        ("apps/v1", "Deploymnet", "kind", "did you mean Deployment?"),
        ("batch/v1", "Jobs", "kind", "did you mean Job?"),
        ("gateway.networking.k8s.io/v1", "HttpRoute", "kind", "did you mean HTTPRoute?"),
        ("split.smi-spec.io/v1alpha4", "TrafficSplitt", "kind", "did you mean TrafficSplit?"),
        (
            "headgate.dev/v1beta1",
            "Toaster",
            "kind",
            f"kinds of headgate.dev are {', '.join(sorted(names.kind for names in NAMES if names.group == MESH))}",
        ),
        ("apps/v1", "Toaster", "kind", "kinds of apps are ControllerRevision, DaemonSet, Deployment"),
        ("v1", "ServiceMonitor", "kind", "kinds of the core group are "),
        ("v1", "Deployment", "apiVersion", "known versions are apps/v1"),
        ("extensions/v1beta1", "Ingress", "apiVersion", "known versions are networking.k8s.io/v1"),
        (
            "autoscaling/v2beta2",
            "HorizontalPodAutoscaler",
            "apiVersion",
            "known versions are autoscaling/v2, autoscaling/v1",
        ),
        ("gateway.network.k8s.io/v1", "HTTPRoute", "apiVersion", "known versions are gateway.networking.k8s.io/v1"),
        ("gateway.network.k8s.io/v1", "Toaster", "kind", "did you mean the group gateway.networking.k8s.io?"),
        ("access.smi-spec.io/v1alpha4", "IdentityBinding", "kind", "write a TrafficTarget in v1alpha3"),
    ],
)
def test_a_misspelled_kind_is_a_mistake_with_a_hint(version: str, kind: str, field: str, text: str) -> None:
    assert not is_foreign({"apiVersion": version, "kind": kind}, BUILT_IN)
    cause = unknown_kind(version, kind)
    assert cause.field == field
    assert text in cause.message


def test_a_service_monitor_is_no_misspelled_service_account() -> None:
    assert "did you mean" not in unknown_kind("v1", "ServiceMonitor").message


@pytest.mark.parametrize(
    "obj", [{}, {"kind": "Toaster"}, {"apiVersion": "a.b/v1"}, {"apiVersion": 1, "kind": "Toaster"}]
)
def test_an_object_without_a_kind_is_not_foreign(obj: dict[str, object]) -> None:
    assert not is_foreign(obj, BUILT_IN)


def test_a_defined_kind_can_be_misspelled_too() -> None:
    kinds = with_definitions([definition()])
    written = {"apiVersion": "stable.example.com/v1", "kind": "CronTabb"}
    assert is_foreign(written, BUILT_IN)
    assert not is_foreign(written, kinds)
    assert "did you mean CronTab?" in unknown_kind(written["apiVersion"], written["kind"], kinds).message
    assert not is_foreign({"apiVersion": "stable.example.com/v9", "kind": "CronTab"}, kinds)
