from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from msgspec import structs
from tests.cli.conftest import make_status
from tests.make import objects

from headgate.cli.live import ReadingHistory, other_findings, sections
from headgate.cli.screen import Screen, compose
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding, Share, SplitOutcome
from headgate.model.routing import PortRef
from headgate.resources.registry import SERVICE, TRAFFIC_SPLIT
from headgate.standalone.request_counters import BackendRequests

WEBSITE = PortRef("default/website", 8080)


def seen(backend: str, requests: int, failures: int = 0) -> BackendRequests:
    return BackendRequests(ref=WEBSITE, backend=f"default/{backend}", requests=requests, failures=failures)


def outcome(weights: Mapping[str, int], port: int = 8080) -> SplitOutcome:
    """Return what the compiler decides for the split `website`, whose backends are all ready."""
    return SplitOutcome(
        about=TRAFFIC_SPLIT.key("default", "website"),
        ref=PortRef("default/website", port),
        shares=tuple(
            Share(service=f"default/{name}", weight=weight, share=Fraction(weight, sum(weights.values())), endpoints=1)
            for name, weight in weights.items()
        ),
        root=Fraction(0),
        failed=Fraction(0),
    )


DECIDED = outcome({"v1": 3, "v2": 1})


def decided(**conditions: str) -> dict[str, Any]:
    words = {"Programmed": "Pending: 0 of 1 proxies have the configuration; waiting for gateway"}
    status = make_status(reasons=words, **conditions) | {
        "proxies": {"programmed": 1, "total": 1},
    }
    return {**objects.split("website", {"v1": 3, "v2": 1}), "status": status}


def rendered(history: ReadingHistory, *splits: Any, trouble: str = "", outcome: SplitOutcome = DECIDED) -> str:
    picture = Screen(sections=tuple(sections(splits, [outcome], history)), urgent=(trouble,) if trouble else ())
    return "\n".join("".join(text for text, _ in row) for row in compose(picture, 80, None))


def row(text: str, backend: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if backend in line)


def test_the_table_shows_requests_since_its_start_and_shares_of_recent_requests() -> None:
    history = ReadingHistory()
    history.add(0.0, [seen("v1", 1000), seen("v2", 1000)])  # before the start of the table
    history.add(5.0, [seen("v1", 1030), seen("v2", 1010)])
    history.add(12.0, [seen("v1", 1060), seen("v2", 1020)])
    history.add(20.0, [seen("v1", 1060), seen("v2", 1040, 2)])
    text = rendered(history, decided())
    assert row(text, "default/v1") == ["default/v1", "75.0%", "50.0%!", "60", "2.0", "0"]
    assert row(text, "default/v2") == ["default/v2", "25.0%", "50.0%!", "40", "2.0", "2"]


def test_a_change_of_weights_resets_the_observed_shares() -> None:
    history = ReadingHistory()
    history.add(0.0, [seen("v1", 0), seen("v2", 0)])
    history.add(1.0, [seen("v1", 75), seen("v2", 25)])
    assert row(rendered(history, decided()), "default/v1")[1:4] == ["75.0%", "75.0%", "75"]
    even = outcome({"v1": 1, "v2": 1})
    assert row(rendered(history, decided(), outcome=even), "default/v1")[1:4] == ["50.0%", "-", "75"]
    history.add(2.0, [seen("v1", 125), seen("v2", 75)])
    assert row(rendered(history, decided(), outcome=even), "default/v1")[1:4] == ["50.0%", "50.0%", "125"]


def test_a_table_without_traffic_shows_no_observed_shares() -> None:
    history = ReadingHistory()
    history.add(0.0, [])
    assert row(rendered(history, decided()), "default/v1") == ["default/v1", "75.0%", "-", "0", "0.0", "0"]


def test_failed_conditions_are_shown_below_the_split() -> None:
    text = rendered(ReadingHistory(), decided(Programmed="False"))
    assert "Pending: 0 of 1 proxies have the configuration; waiting for gateway" in text
    assert "Pending" not in rendered(ReadingHistory(), decided())


def test_the_table_fits_in_80_columns() -> None:
    split = decided(Programmed="False")
    split["metadata"]["name"] = "a" * 60
    long = structs.replace(DECIDED, about=TRAFFIC_SPLIT.key("default", "a" * 60))
    assert max(map(len, rendered(ReadingHistory(), split, outcome=long).splitlines())) <= 80


def test_a_table_without_splits_says_how_to_create_one() -> None:
    assert "There is no TrafficSplit" in rendered(ReadingHistory())


def test_the_table_shows_that_a_proxy_does_not_answer() -> None:
    assert "does not answer" in rendered(ReadingHistory(), decided(), trouble="Envoy does not answer")


def test_a_split_with_matches_counts_only_matching_requests() -> None:
    """R12. The split does not route the requests that match no group."""
    history = ReadingHistory()
    history.add(0.0, [])
    claimed = [structs.replace(seen(name, count), split="default/website") for name, count in (("v1", 30), ("v2", 10))]
    history.add(1.0, [*claimed, seen("v1", 5), seen("website", 1000)])
    split = decided()
    split["spec"]["matches"] = [{"kind": "HTTPRouteGroup", "name": "g"}]
    text = rendered(history, split)
    assert row(text, "default/v1")[1:4] == ["75.0%", "75.0%", "30"]
    assert "1000" not in text


def test_shares_of_a_sticky_split_are_not_marked() -> None:
    """All requests of a user go to one backend. Only a backend with weight 0 is marked."""
    history = ReadingHistory()
    history.add(0.0, [])
    history.add(1.0, [seen("v1", 400)])
    split = decided()
    assert row(rendered(history, split), "default/v1")[2] == "100.0%!"
    split["metadata"]["annotations"] = {"headgate.dev/sticky": "cookie:side"}
    assert row(rendered(history, split), "default/v1")[2] == "100.0%"


def test_findings_on_services_are_shown_below_the_table() -> None:
    """This includes Services without a split. Findings on a split are shown only beside the split."""

    def finding(about: Any, reason: Reason) -> Finding:
        return Finding(about=about, reason=reason, field="spec", message=f"says {reason.value}")

    service, split = SERVICE.key("default", "web"), TRAFFIC_SPLIT.key("default", "website")
    found = [
        finding(service, Reason.TARGET_PORT_NOT_DECLARED),
        finding(service, Reason.NOT_ROUTED),
        finding(split, Reason.SERVICE_NOT_FOUND),
    ]
    name = Reason.TARGET_PORT_NOT_DECLARED.value
    assert list(other_findings(found)) == [f"{name} Service default/web: spec: says {name}"]


def test_a_removed_backend_stays_in_the_table_while_it_gets_requests() -> None:
    history = ReadingHistory()
    history.add(0.0, [])
    history.add(1.0, [seen("v1", 75), seen("v2", 25)])
    rendered(history, decided())
    alone = outcome({"v1": 1})
    rendered(history, decided(), outcome=alone)
    history.add(2.0, [seen("v1", 75), seen("v2", 30)])
    assert row(rendered(history, decided(), outcome=alone), "default/v2")[1:4] == [
        "0.0%",
        "100.0%!",
        "30",
    ]  # requests still reach the removed backend
    history.add(9.0, [seen("v1", 175), seen("v2", 30)])
    history.add(14.0, [seen("v1", 275), seen("v2", 30)])
    assert "default/v2" not in rendered(history, decided(), outcome=alone)
    assert row(rendered(history, decided(), outcome=alone), "default/v1")[1:3] == ["100.0%", "100.0%"]


def test_the_state_of_a_rollout_is_shown_once_below_the_last_port_of_its_split() -> None:
    shown = sections(
        [decided()],
        [DECIDED, outcome({"v1": 1}, 9090)],
        ReadingHistory(),
        rollouts={"default/website": "Progressing: step 1 of 3"},
    )
    assert [(section.port, section.rollout) for section in shown] == [(8080, ""), (9090, "Progressing: step 1 of 3")]
