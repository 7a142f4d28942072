"""Label and field selectors, as kubectl sends them."""

from typing import Any

import pytest

from headgate.api.selectors import field_selector, label_selector
from headgate.api.status import ApiError
from headgate.resources.core.event import KIND as EVENT
from headgate.resources.registry import POD


def labelled(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "x", "labels": labels}}


@pytest.mark.parametrize(
    ("selector", "matching", "other"),
    [
        ("a=1", {"a": "1"}, {"a": "2"}),
        ("a==1,b=2", {"a": "1", "b": "2"}, {"a": "1"}),
        ("a!=1", {}, {"a": "1"}),
        ("a", {"a": ""}, {}),
        ("!a", {"b": "1"}, {"a": "1"}),
        ("a in (1, 2)", {"a": "2"}, {"a": "3"}),
        ("a notin (1,2)", {}, {"a": "1"}),
        ("a in (1,2),b", {"a": "1", "b": ""}, {"a": "1"}),
        ("a>3", {"a": "4"}, {"a": "3"}),
        ("a<3", {"a": "2"}, {"a": "x"}),
        ("a=", {"a": ""}, {"a": "1"}),
        ("example.com/a-b_c=x.y", {"example.com/a-b_c": "x.y"}, {}),
    ],
)
def test_a_label_selector_matches_by_kubernetes_rules(
    selector: str, matching: dict[str, str], other: dict[str, str]
) -> None:
    selects = label_selector(selector)
    assert selects(labelled(**matching))
    assert not selects(labelled(**other))
    assert selects({"metadata": {"name": "x"}}) == selects(labelled())


@pytest.mark.parametrize("selector", ["=1", "a in 1", "a=b=c", "a,,b", "a in (1", ","])
def test_a_malformed_label_selector_is_a_bad_request(selector: str) -> None:
    with pytest.raises(ApiError) as caught:
        label_selector(selector)
    assert caught.value.code == 400


def test_a_field_selector_compares_fields() -> None:
    pod = {"metadata": {"name": "p", "namespace": "n"}, "status": {"phase": "Running"}}
    assert field_selector("metadata.name=p,status.phase!=Failed", POD.selectable)(pod)
    assert not field_selector("metadata.name==p,status.phase=Failed", POD.selectable)(pod)
    assert field_selector("spec.nodeName=", POD.selectable)(pod)
    event = {"metadata": {"name": "e"}, "source": {"component": "kubelet"}, "involvedObject": {"name": "a,b"}}
    assert field_selector(r"source=kubelet,involvedObject.name=a\,b", EVENT.selectable)(event)


@pytest.mark.parametrize("selector", ["status.phase=x", "metadata.name", "=x", "metadata.name=a,"])
def test_an_unsupported_or_malformed_field_selector_is_a_bad_request(selector: str) -> None:
    with pytest.raises(ApiError) as caught:
        field_selector(selector)
    assert caught.value.code == 400
