"""The live table fits its terminal: which parts are shortened or hidden, and which never are."""

import pytest
from msgspec import structs

from headgate.cli.screen import Screen, SplitRow, SplitSection, compose

HEADING = (
    "  kubectl     source .headgate/canary/env",
    "  HTTP proxy  export http_proxy=http://127.0.0.1:40000 no_proxy=.localhost",
)
PROBLEM = (
    "manifests/a-directory-with-a-long-name/split.yaml:11:20: spec.backends[1].weight: must be a whole number of 0 or more, "
    "not -1; write the share of the requests that the backend is to get"
)


def line(backend: str, wanted: float, *, fits: bool = True, failures: int = 0) -> SplitRow:
    return SplitRow(
        backend=backend, wanted=wanted, observed=wanted, requests=100, rate=12.5, failures=failures, fits=fits
    )


def section(
    number: int, *, name: str = "", acknowledged: tuple[int, int] = (5, 5), remarks: tuple[str, ...] = ()
) -> SplitSection:
    root = name or f"default/website-{number}"
    backends = (line(f"{root}-v1", 0.9), line(f"{root}-v2", 0.1))
    address = f"127.77.{100 + number}.200:8080"
    return SplitSection(
        name=root, port=8080, address=address, acknowledged=acknowledged, backends=backends, remarks=remarks
    )


def rendered(picture: Screen, width: int = 80, height: int | None = 24) -> list[str]:
    rows = ["".join(text for text, _ in row) for row in compose(picture, width, height)]
    assert max(map(len, rows)) <= width
    assert height is None or len(rows) <= height
    return rows


def splits(count: int, **more: str) -> tuple[SplitSection, ...]:
    return tuple(section(number, **more) for number in range(count))


def test_the_table_of_a_few_splits_shows_each_backend_and_the_address() -> None:
    rows = rendered(Screen(heading=HEADING, sections=splits(2)))
    assert rows[:2] == list(HEADING)
    assert rows[2].split() == ["SPLIT", "WANTED", "OBSERVED", "REQUESTS", "REQ/S", "FAILED"]
    assert rows[3].split() == [
        "default/website-0",
        "port",
        "8080",
        "127.77.100.200:8080",
        "active",
        "on",
        "5",
        "of",
        "5",
        "proxies",
    ]
    assert rows[4].split() == ["default/website-0-v1", "90.0%", "90.0%", "100", "12.5", "0"]


def test_14_splits_fit_into_24_rows_with_complete_names_and_addresses() -> None:
    rows = rendered(Screen(heading=HEADING, sections=splits(14)))
    assert [row.split()[0] for row in rows].count("SPLIT") == 1
    for number in range(14):
        (row,) = [row for row in rows if row.startswith(f"default/website-{number} ")]
        assert f"127.77.{100 + number}.200:8080" in row
        assert "90/10" in row


def test_errors_in_files_are_shown_in_full_below_14_splits() -> None:
    rows = rendered(Screen(heading=HEADING, sections=splits(14), urgent=(PROBLEM,)))
    assert PROBLEM in " ".join(rows)
    assert all(f"127.77.{100 + number}.200:8080" in " ".join(rows) for number in range(14))


def test_findings_leave_room_for_every_split() -> None:
    wrong = tuple(section(number, remarks=("NoReadyEndpoints: none",)) for number in range(14))
    rows = rendered(Screen(heading=HEADING, sections=wrong, urgent=(PROBLEM,), findings=("Pod a: BackOff",) * 30))
    assert PROBLEM in " ".join(rows)
    assert all(f"127.77.{100 + number}.200:8080" in " ".join(rows) for number in range(14))
    assert rows[-2:] == ["Pod a: BackOff", "and 41 more messages: kubectl get events, headgate check DIR"]
    recent = ("12:00:00 All files are valid again.",)
    rows = rendered(Screen(heading=HEADING, sections=wrong, findings=("Pod a: BackOff",) * 30, recent=recent))
    assert rows[-1] == recent[0]


def test_the_compact_table_shows_failed_conditions() -> None:
    remark = "BackendNotFound: Service default/website-v3 not found; it gets no traffic until it exists"
    wrong = section(3, acknowledged=(4, 5), remarks=(remark,))
    rows = rendered(Screen(heading=HEADING, sections=(*splits(13), wrong)))
    assert f"default/website-3: {remark}" in " ".join(rows)


def test_columns_are_hidden_before_names_are_shortened() -> None:
    name = "shop-production/recommendations"
    rows = rendered(Screen(sections=splits(14, name=name)))
    assert len([row for row in rows if row.startswith(f"{name} ")]) == 14
    assert "REQ/S" not in rows[0]
    long = "shop-production/" + "recommendations-" * 4
    rows = rendered(Screen(sections=splits(14, name=long)))
    assert [row for row in rows if "…" in row]
    assert all(f"127.77.{100 + number}.200:8080" in " ".join(rows) for number in range(14))
    few = rendered(Screen(sections=splits(1, name="shop-production/recommendations-of-the-day")))
    assert "REQ/S" not in few[0]
    assert [row for row in few if "shop-production/recommendations-of-the-day-v1 " in row]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 20), (40, 12), (200, 60), (20, 5), (80, 3)])
def test_the_table_fits_any_terminal(width: int, height: int) -> None:
    picture = Screen(
        heading=HEADING,
        sections=splits(30),
        urgent=(PROBLEM, PROBLEM.replace("11", "12")),
        recent=("12:00:00 All files are valid again.",) * 40,
        other_addresses=tuple((f"default/other-{number}", "127.77.1.1:80") for number in range(30)),
    )
    rendered(picture, width, height)


def test_hidden_rows_and_messages_are_counted() -> None:
    rows = rendered(Screen(heading=HEADING, sections=splits(40)))
    assert rows[-1] == "and 20 more splits: kubectl get trafficsplits -A"
    rows = rendered(Screen(heading=HEADING, sections=splits(2), urgent=(PROBLEM,) * 20))
    assert "more messages" in rows[-1]
    assert " ".join(rows).count(PROBLEM) + int(rows[-1].split()[1]) == 20


def test_other_services_and_messages_fill_the_remaining_rows() -> None:
    picture = Screen(
        heading=HEADING,
        sections=splits(1),
        other_addresses=(("default/plain", "127.77.9.9:80"),),
        recent=("12:00:00 TrafficSplit default/website changed",),
    )
    rows = rendered(picture)
    assert "default/plain  127.77.9.9:80" in rows
    assert rows[-1] == "12:00:00 TrafficSplit default/website changed"


def test_control_characters_in_the_output_of_programs_are_removed() -> None:
    rows = rendered(Screen(urgent=("Pod a: \x1b[2J\x1b[Hwiped\r\x07",)))
    assert rows[-1] == "Pod a: wiped"


def test_a_share_outside_its_expected_range_is_marked() -> None:
    wrong = SplitSection(
        name="a/b", port=80, address="", acknowledged=(1, 1), backends=(line("a/v1", 0.5, fits=False),)
    )
    assert "50.0%!" in " ".join(rendered(Screen(sections=(wrong,))))


def test_a_table_without_splits_says_how_to_create_one() -> None:
    assert "There is no TrafficSplit." in " ".join(rendered(Screen()))


def test_the_state_of_a_rollout_is_below_the_backends_of_its_split() -> None:
    state = "Progressing: step 1 of 3, 10%; evidence to promote 12%, to roll back 0%"
    rows = rendered(Screen(sections=(structs.replace(section(1), rollout=state, remarks=("Late: wait",)), section(2))))
    assert rows[4:6] == [f"  {state}", "  Late: wait"]
    assert rows[6].startswith("default/website-2")
    many = tuple(structs.replace(one, rollout=state) for one in splits(20))
    assert not any("Progressing" in row for row in rendered(Screen(sections=many)))  # a line for each split has no room


def test_a_message_is_wrapped_between_words_and_not_at_their_hyphens() -> None:
    name = "default/website-payments-v2"
    rows = rendered(
        Screen(sections=splits(1), urgent=(f"no request reaches the Service {name} on any proxy",)), width=50
    )
    assert name in {word for row in rows for word in row.split()}
