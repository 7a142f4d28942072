"""The names that users write, and what they mean (R2, R29, D12)."""

import pytest

from headgate.compiler.references import grant_hint, permitted
from headgate.compiler.snapshot import Snapshot
from headgate.resources.gateway import GrantFrom, GrantTo, ReferenceGrant, ReferenceGrantSpec
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
def test_every_form_of_a_name(written, meant):
    assert service_name(written, "shop", "cluster.local") == meant


def test_the_domain_is_the_meshs_own():
    assert service_name("website.blue.svc.example.com", "shop", "example.com") == "blue/website"


def granted(source, target):
    grant = ReferenceGrant(spec=ReferenceGrantSpec(from_=(source,), to=(target,)))
    return Snapshot(objects={GRANT: grant})


FROM_SHOP = GrantFrom(group="split.smi-spec.io", kind="TrafficSplit", namespace="shop")
TO_SERVICES = GrantTo(group="", kind="Service")


def test_a_namespace_needs_no_consent_of_its_own():
    assert permitted(Snapshot(), SPLIT, "shop/website")


def test_another_namespace_must_consent():
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
def test_consent_to_something_else_is_none(source, target):
    assert not permitted(granted(source, target), SPLIT, "blue/website")


def test_consent_may_name_one_service():
    assert permitted(granted(FROM_SHOP, GrantTo(group="", kind="Service", name="website")), SPLIT, "blue/website")


def test_the_hint_spells_the_grant_out():
    assert grant_hint(SPLIT, "blue/website") == (
        "create a ReferenceGrant in the namespace blue from group split.smi-spec.io, kind TrafficSplit, "
        "namespace shop to kind Service, name website"
    )
