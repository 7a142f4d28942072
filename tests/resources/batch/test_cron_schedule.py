from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from headgate.resources.batch.cron_schedule import parse_schedule, parse_zone

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone=UTC) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def following(schedule: str, after: str, count: int = 1, zone=UTC) -> list[str]:
    """Return the next times of a schedule, in a time zone."""
    times, last = [], at(after, zone)
    for _ in range(count):
        last = parse_schedule(schedule).following(last, zone)
        times.append(datetime.fromtimestamp(last, zone).strftime("%Y-%m-%d %H:%M"))
    return times


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("* * * * *", "2026-01-01 10:00:30", ["2026-01-01 10:01", "2026-01-01 10:02"]),
        ("*/15 * * * *", "2026-01-01 10:15", ["2026-01-01 10:30", "2026-01-01 10:45"]),
        ("5/20 * * * *", "2026-01-01 10:00", ["2026-01-01 10:05", "2026-01-01 10:25"]),
        ("0 9-17/4 * * *", "2026-01-01 10:00", ["2026-01-01 13:00", "2026-01-01 17:00"]),
        ("30 8 * * Mon-Fri", "2026-01-02 09:00", ["2026-01-05 08:30", "2026-01-06 08:30"]),
        ("0 0 1 jan,JUL *", "2026-01-01 00:00", ["2026-07-01 00:00", "2027-01-01 00:00"]),
        ("0 0 13 * fri", "2026-02-01 00:00", ["2026-02-06 00:00", "2026-02-13 00:00"]),  # either day
        ("0 0 13 * ?", "2026-02-01 00:00", ["2026-02-13 00:00", "2026-03-13 00:00"]),
        ("0 0 */2 * mon", "2026-02-01 00:00", ["2026-02-02 00:00", "2026-02-03 00:00"]),  # a step restricts days
        ("0 0 29 2 *", "2026-01-01 00:00", ["2028-02-29 00:00", "2032-02-29 00:00"]),
        ("@hourly", "2026-01-01 10:00", ["2026-01-01 11:00", "2026-01-01 12:00"]),
        ("@daily", "2026-01-01 10:00", ["2026-01-02 00:00", "2026-01-03 00:00"]),
        ("@weekly", "2026-01-01 10:00", ["2026-01-04 00:00", "2026-01-11 00:00"]),
        ("@yearly", "2026-01-01 00:00", ["2027-01-01 00:00", "2028-01-01 00:00"]),
    ],
)
def test_a_schedule_has_the_times_of_kubernetes(schedule, after, expected):
    assert following(schedule, after, len(expected)) == expected


def test_a_schedule_without_times_has_no_next_one():
    assert parse_schedule("0 0 30 2 *").following(at("2026-01-01"), UTC) is None


def test_a_skipped_time_is_left_out_and_a_repeated_time_occurs_twice():
    assert following("30 2 * * *", "2026-03-28 12:00", zone=BERLIN) == ["2026-03-30 02:30"]
    assert following("30 2 * * *", "2026-10-24 12:00", 3, BERLIN) == ["2026-10-25 02:30"] * 2 + ["2026-10-26 02:30"]


def test_the_latest_time_is_in_the_interval():
    schedule = parse_schedule("0 * * * *")
    first, last = at("2026-01-01 10:00"), at("2026-01-03 09:59")
    assert schedule.latest(first, last, UTC) == at("2026-01-03 09:00")
    assert schedule.latest(first, at("2026-01-01 11:00"), UTC) == at("2026-01-01 11:00")
    assert schedule.latest(first, at("2026-01-01 10:59"), UTC) is None


def test_an_interval_has_the_times_after_its_start():
    schedule, start = parse_schedule("@every 20s"), at("2026-01-01 10:00")
    assert schedule.following(start + 41.5, UTC, start=start) == start + 60
    assert schedule.following(start + 60, UTC, start=start) == start + 80
    assert schedule.latest(start, start + 65, UTC, start=start) == start + 60
    assert schedule.latest(start + 59, start + 65, UTC, start=start) == start + 60
    assert schedule.latest(start + 60, start + 65, UTC, start=start) is None
    assert schedule.latest(start, start + 19, UTC, start=start) is None


def test_times_are_in_the_order_of_the_clock_when_it_repeats_two_hours():
    troll = ZoneInfo("Antarctica/Troll")
    hourly, before = parse_schedule("0 * * * *"), at("2026-10-24 23:30")
    times = [before]
    for _ in range(5):
        times.append(hourly.following(times[-1], troll))
    hours = [datetime.fromtimestamp(time, troll).hour for time in times[1:]]
    assert hours == [2, 1, 2, 3, 4]
    backwards = [times[-1]]
    for _ in range(4):
        backwards.append(hourly.latest(before, backwards[-1] - 1, troll))
    assert backwards[::-1] == times[1:]


@pytest.mark.parametrize("zone", [UTC, BERLIN, ZoneInfo("Australia/Lord_Howe"), ZoneInfo("Asia/Kathmandu")])
@pytest.mark.parametrize("schedule", ["7,37 1-3 * * *", "0 0 1 */3 *", "59 23 * * sat"])
def test_the_times_backward_are_those_forward(schedule, zone):
    parsed, first, last = parse_schedule(schedule), at("2026-01-01", zone), at("2027-01-01", zone)
    forward, time = [], first
    while (time := parsed.following(time, zone)) <= last:
        forward.append(time)
    backward, time = [], last
    while (time := parsed.latest(first, time, zone)) is not None:
        backward.append(time)
        time -= 1
    assert backward[::-1] == forward
    assert forward


@pytest.mark.parametrize(
    ("schedule", "mistake"),
    [
        ("", "'' has 0 fields; write five"),
        ("* * * *", "has 4 fields"),
        ("* * * * * *", "has 6 fields"),
        ("60 * * * *", "'60' in the minute: use 0 to 59"),
        ("* * * * 7", "'7' in the day of the week: use 0 to 6 or sun to sat"),
        ("* * * foo *", "'foo' in the month: use 1 to 12 or jan to dec"),
        ("5-1 * * * *", "'5-1' in the minute: the range ends before it begins"),
        ("*/0 * * * *", "the step must be a number above 0"),
        ("1/ * * * *", "the step must be a number above 0"),
        ("* * L * *", "'L' in the day of the month"),
        ("@often", "'@often' is unknown; use one of @yearly"),
        ("@every soon", "'soon' is not a duration"),
        ("@every 0s", "'0s' is too short"),
        ("TZ=UTC * * * * *", "set spec.timeZone"),
    ],
)
def test_a_mistake_in_a_schedule_is_named(schedule, mistake):
    with pytest.raises(ValueError) as caught:
        parse_schedule(schedule)
    assert mistake in str(caught.value)


def test_time_zones_are_those_of_the_database():
    assert parse_zone("Europe/Berlin") == BERLIN
    assert parse_zone("") is None
    for name in ("Moon/Crater", "../etc/passwd", "Europe"):
        with pytest.raises(ValueError, match="is no time zone that this machine knows"):
            parse_zone(name)
