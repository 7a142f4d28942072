"""The differing fields of two contents."""

from msgspec import structs
from tests.history.objects import website_split
from tests.make.objects import service

from headgate.history.differences import differences
from headgate.history.records import content_of


def fields(before: object, after: object) -> list[tuple[str, object, object]]:
    contents = (content_of(obj) if isinstance(obj, dict) else None for obj in (before, after))
    return [structs.astuple(field) for field in differences(*contents)]


def test_items_of_a_list_are_named_by_their_name() -> None:
    expected = [("spec.backends[website-v1].weight", 90, 80), ("spec.backends[website-v2].weight", 10, 20)]
    assert fields(website_split(), website_split(weight=80)) == expected


def test_added_and_removed_items_are_whole() -> None:
    changed = website_split()
    changed["spec"]["backends"] = [{"service": "website-v1", "weight": 90}]
    second = {"service": "website-v2", "weight": 10}
    assert fields(website_split(), changed) == [("spec.backends[website-v2]", second, None)]
    assert fields(changed, website_split()) == [("spec.backends[website-v2]", None, second)]


def test_an_item_that_replaces_another_one_is_one_difference() -> None:
    changed = website_split()
    changed["spec"]["backends"][1] = {"service": "website-v3", "weight": 20}
    before, after = {"service": "website-v2", "weight": 10}, {"service": "website-v3", "weight": 20}
    assert fields(website_split(), changed) == [("spec.backends[website-v2]", before, after)]


def test_other_lists_are_compared_by_position_and_reordered_items_are_named() -> None:
    assert fields(service("a", externalIPs=["1", "2"]), service("a", externalIPs=["1", "3"])) == [
        ("spec.externalIPs[1]", "2", "3")
    ]
    turned = website_split()
    turned["spec"]["backends"].reverse()
    order = ["website-v1", "website-v2"]
    assert fields(website_split(), turned) == [("spec.backends in order", order, order[::-1])]


def test_labels_with_dots_are_quoted() -> None:
    labels = {"app.kubernetes.io/name": "web"}
    assert fields(website_split(), website_split(labels=labels)) == [
        ('metadata.labels["app.kubernetes.io/name"]', None, "web")
    ]


def test_a_created_object_has_all_its_fields_but_its_name() -> None:
    created = fields(None, service("a"))
    assert created == [("spec.ports[http]", None, {"name": "http", "port": 8080})]
    assert fields(service("a"), None) == [(path, after, None) for path, _, after in created]
