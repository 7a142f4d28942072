"""Sets of kinds find kinds by objects and paths."""

from tests.make.definitions import definition, version

from headgate.resources.custom.kinds import with_definitions
from headgate.resources.kind_set import KindSet
from headgate.resources.registry import BUILT_IN, POD


def test_a_kind_is_found_by_object_path_and_definition() -> None:
    kinds = with_definitions([definition()])
    kind = kinds.find("stable.example.com", "CronTab")
    assert kind is not None
    assert kinds.find_written("stable.example.com/v1", "CronTab") is kind
    assert kinds.find_written("stable.example.com/v2", "CronTab") is None
    served = kinds.served_at("stable.example.com", "v1", "crontabs")
    assert served
    assert served.kind is kind
    assert kinds.defined_by("crontabs.stable.example.com") is kind
    assert kinds.defined_by("pods") is None
    assert list(kinds.groups["stable.example.com"]) == ["v1"]


def test_the_first_kind_of_a_name_counts() -> None:
    assert KindSet((POD, *BUILT_IN.kinds)).find("", "Pod") is POD


def test_sets_with_equal_definitions_are_equal() -> None:
    one, same = (with_definitions([definition()]) for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    assert one != with_definitions([definition(version("v2"))])
    assert one != BUILT_IN


def test_each_group_of_the_built_in_kinds_has_its_kinds() -> None:
    assert {"networking.k8s.io", "batch", "autoscaling", "rbac.authorization.k8s.io"} <= BUILT_IN.groups.keys()
    assert list(BUILT_IN.groups["autoscaling"]) == ["v2", "v1"]
