"""Access policies without pods name the pods that they probably mean."""

import pytest
from tests.make.objects import meshed_pod, service, traffic_target
from tests.make.values import compiled, findings

from headgate.compiler.reasons import Reason

LABELS = {"app": "web"}


def messages(account: str, *accounts: str) -> list[str]:
    """Return the ends of the warnings about a TrafficTarget for an account, where pods run as others."""
    pods = [
        meshed_pod(f"pod-{number}", f"10.0.0.{number}", labels=LABELS, account=name)
        for number, name in enumerate(accounts, start=1)
    ]
    result = compiled(*pods, service("web", selector=LABELS), traffic_target("t", account, ["client"], []))
    return [finding.message.rpartition("; ")[2] for finding in findings(result, Reason.NO_SUCH_PODS)]


@pytest.mark.parametrize("account", ["boostore", "bookstoree", "bookstora", "bookstroe"])
def test_a_name_with_one_wrong_letter_is_a_warning_that_names_the_other(account: str) -> None:
    assert messages(account, "bookstore", "other") == ["there are pods of ServiceAccount default/bookstore"]


@pytest.mark.parametrize("account", ["bookstore", "books", "store", "bookstore-2"])
def test_a_name_of_pods_another_name_or_another_version_is_no_warning(account: str) -> None:
    assert messages(account, "bookstore", "bookstore-1", "bookstore-3") == []


@pytest.mark.parametrize(
    ("account", "other"), [("orders", "rdersx"), ("orders", "roedrs"), ("ui", "ux"), ("abc", "bcd")]
)
def test_names_that_differ_by_more_or_are_short_are_no_warning(account: str, other: str) -> None:
    assert messages(account, other) == []


def test_the_name_of_a_service_leads_to_the_account_of_its_pods() -> None:
    assert messages("web", "default") == ["the pods of Service default/web run as ServiceAccount default/default"]


def test_a_similar_name_in_another_namespace_is_no_warning() -> None:
    pod = meshed_pod("pod", "10.0.0.1", account="orders", namespace="shop")
    result = compiled(pod, traffic_target("t", "ordres", ["client"], []))
    assert findings(result, Reason.NO_SUCH_PODS) == []
