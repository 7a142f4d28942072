"""References to Services by name (R2, R29, D12)."""

import pytest

from headgate.compiler.references import grant_hint, permitted
from headgate.compiler.snapshot import Snapshot
from headgate.resources.gateway_api.reference_grant import GrantFrom, GrantTo, ReferenceGrant, ReferenceGrantSpec
from headgate.resources.meta import Key, service_name
from headgate.resources.registry import TRAFFIC_SPLIT

SPLIT = TRAFFIC_SPLIT.key("shop", "website")
GRANT = Key("gateway.networking.k8s.io", "ReferenceGrant", "blue", "g")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("website", "shop/website"),
        ("website.blue", "blue/website"),
        ("website.blue.svc", "blue/website"),
        ("website.blue.svc.cluster.local", "blue/website"),
        ("website.blue.svc.cluster.local.", "blue/website"),
        ("WebSite.Blue", "blue/website"),
        ("website.svc", "svc/website"),
        ("website.svc.svc", "svc/website"),
        ("", ""),
        (".", ""),
        ("website.", "shop/website"),
        (".blue", ""),
        ("website..svc", ""),
        ("website.blue.pod", ""),
        ("website.blue.svc.cluster", ""),
        ("website.blue.svc.example.com", ""),
        ("a.b.c.d.e", ""),
    ],
)
def test_every_form_of_a_service_name_is_accepted(written, meant):
    assert service_name(written, "shop", "cluster.local") == meant


def test_a_full_service_name_ends_with_the_domain_of_the_mesh():
    assert service_name("website.blue.svc.example.com", "shop", "example.com") == "blue/website"


def granted(source, target):
    grant = ReferenceGrant(spec=ReferenceGrantSpec(from_=(source,), to=(target,)))
    return Snapshot(objects={GRANT: grant})


FROM_SHOP = GrantFrom(group="split.smi-spec.io", kind="TrafficSplit", namespace="shop")
TO_SERVICES = GrantTo(group="", kind="Service")


def test_a_reference_in_its_own_namespace_needs_no_grant():
    assert permitted(Snapshot(), SPLIT, "shop/website")


def test_a_reference_to_another_namespace_needs_a_grant():
    assert not permitted(Snapshot(), SPLIT, "blue/website")
    assert permitted(granted(FROM_SHOP, TO_SERVICES), SPLIT, "blue/website")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (GrantFrom(group="split.smi-spec.io", kind="TrafficSplit", namespace="other"), TO_SERVICES),
        (GrantFrom(group="split.smi-spec.io", kind="Canary", namespace="shop"), TO_SERVICES),
        (GrantFrom(group="", kind="TrafficSplit", namespace="shop"), TO_SERVICES),
        (FROM_SHOP, GrantTo(group="", kind="Secret")),
        (FROM_SHOP, GrantTo(group="", kind="Service", name="other")),
    ],
)
def test_a_grant_for_another_source_or_target_does_not_apply(source, target):
    assert not permitted(granted(source, target), SPLIT, "blue/website")


def test_a_grant_can_name_one_service():
    assert permitted(granted(FROM_SHOP, GrantTo(group="", kind="Service", name="website")), SPLIT, "blue/website")


def test_the_hint_contains_the_complete_grant():
    assert grant_hint(SPLIT, "blue/website") == (
        "create a ReferenceGrant in the namespace blue from group split.smi-spec.io, kind TrafficSplit, "
        "namespace shop to kind Service, name website"
    )
