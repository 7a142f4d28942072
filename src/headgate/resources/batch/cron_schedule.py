"""Schedules of CronJobs: five fields as in Vixie cron, or a descriptor such as `@hourly` or `@every 90m`.

The grammar is that of Kubernetes (the package robfig/cron, version 3): no seconds, no `L`, `W` and `#`, Sunday is 0 and not 7.
Libraries for Python accept more and combine the two fields of days differently. See
https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#schedule-syntax.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

from headgate.durations import seconds

_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = {
    name: number
    for number, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
    )
}
_DAYS = {name: number for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_EVERY = "@every "
_MINUTE_S, _QUARTER_S, _HOUR_S, _DAY_S = 60, 900, 3600, 86400
_HORIZON_DAYS = 9 * 366  # the longest time between two 29ths of February is eight years
_HORIZON_S = _HORIZON_DAYS * _DAY_S


class _Field(NamedTuple):
    """A field of a schedule: its name, smallest and largest value, and the names of values."""

    name: str
    least: int
    most: int
    names: dict[str, int]


_FIELDS = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of the month", 1, 31, {}),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 6, _DAYS),
)


class CronSchedule(NamedTuple):
    """A schedule. `every` is the interval of `@every` in seconds; else it is 0, and the sets have the values of each field.

    With `any_day`, a day must be in both `days` and `weekdays`; else in one of them.
    """

    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    any_day: bool = True
    every: int = 0

    def following(self, after: float, zone: tzinfo | None, *, start: float = 0.0) -> float | None:
        """Return the first time after `after`, in seconds since the epoch; None if there is none within nine years.

        `zone` is None for the time zone of this machine. The intervals of `@every` begin at `start`.
        """
        if self.every:
            return start + (int(after - start) // self.every + 1) * self.every
        return self._nearest(int(after) // _MINUTE_S * _MINUTE_S + _MINUTE_S, after + _HORIZON_S, zone, _MINUTE_S)

    def latest(self, after: float, until: float, zone: tzinfo | None, *, start: float = 0.0) -> float | None:
        """Return the last time after `after` and not after `until`; None if there is none."""
        if self.every:
            last: float | None = start + int(until - start) // self.every * self.every
        else:
            last = self._nearest(int(until) // _MINUTE_S * _MINUTE_S, after, zone, -_MINUTE_S)
        return last if last is not None and last > after else None

    def _nearest(self, at: int, end: float, zone: tzinfo | None, step: int) -> float | None:
        """Return the time that is nearest to `at`, up to `end`, forward or, with a negative step, backward.

        The search follows instants, so that a time that the clock skips is left out, and a repeated time occurs twice. It
        skips quarters of an hour, which no clock change divides, and days.
        """
        while (end - at) * step >= 0:
            local = datetime.fromtimestamp(at, zone)
            fits = self._has(local.date())
            if fits and local.hour in self.hours:
                if local.minute in self.minutes:
                    return float(at)
                at += step
                continue
            quarter = at // _QUARTER_S * _QUARTER_S
            ahead = [quarter + _QUARTER_S if step > 0 else quarter - _MINUTE_S]
            if not fits:  # less three hours, because the clock may change until then
                ahead.append(at + step // _MINUTE_S * (self._days_to_next(local.date(), step) * _DAY_S - 3 * _HOUR_S))
            at = max(ahead) if step > 0 else min(ahead)
        return None

    def _days_to_next(self, day: date, step: int) -> int:
        """Return the number of days between a day and the next one of the schedule, forward or backward."""
        distance = timedelta(days=1 if step > 0 else -1)
        return next((days for days in range(_HORIZON_DAYS) if self._has(day + distance * (days + 1))), _HORIZON_DAYS)

    def _has(self, day: date) -> bool:
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        fits = in_month and in_week if self.any_day else in_month or in_week
        return day.month in self.months and fits


def parse_schedule(text: str) -> CronSchedule:
    """Parse a schedule. Raises ValueError with the mistake."""
    if text.startswith(("TZ=", "CRON_TZ=")):
        raise ValueError("must not begin with a time zone: set spec.timeZone")
    if text.startswith(_EVERY):
        return CronSchedule(every=_interval(text.removeprefix(_EVERY)))
    if text.startswith("@") and text not in _DESCRIPTORS:
        raise ValueError(f"{text!r} is unknown; use one of {', '.join(_DESCRIPTORS)} or @every DURATION")
    parts = _DESCRIPTORS.get(text, text).split()
    if len(parts) != len(_FIELDS):
        raise ValueError(
            f"{text!r} has {len(parts)} fields; write five: minute, hour, day of the month, month, day of the week"
        )
    minutes, hours, days, months, weekdays = (
        frozenset(_values(part, field)) for part, field in zip(parts, _FIELDS, strict=True)
    )
    any_day = any(_is_any(part) for part in (parts[2], parts[4]))
    return CronSchedule(minutes, hours, days, months, weekdays, any_day)


def parse_zone(name: str) -> tzinfo | None:
    """Return a time zone by its name in the IANA database; None for an empty name. Raises ValueError."""
    if not name:
        return None
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"{name!r} is no time zone that this machine knows, such as Europe/Berlin") from error


def _is_any(text: str) -> bool:
    """Return whether a field has every value without a step, in at least one part, so that it does not restrict days."""
    return any(part in ("*", "?", "*/1", "?/1") for part in text.split(","))


def _values(text: str, field: _Field) -> Iterator[int]:
    for part in text.split(","):
        span, slash, step = part.partition("/")
        first, last = _span(span, field, part)
        if slash and not (step.isdecimal() and int(step) > 0):
            raise ValueError(f"{part!r} in the {field.name}: the step must be a number above 0")
        if slash and "-" not in span and span not in ("*", "?"):
            last = field.most
        yield from range(first, last + 1, int(step or 1))


def _span(text: str, field: _Field, part: str) -> tuple[int, int]:
    if text in ("*", "?"):
        return field.least, field.most
    first, dash, last = text.partition("-")
    lower = _number(first, field, part)
    upper = _number(last, field, part) if dash else lower
    if lower > upper:
        raise ValueError(f"{part!r} in the {field.name}: the range ends before it begins")
    return lower, upper


def _number(text: str, field: _Field, part: str) -> int:
    number = field.names.get(text.lower(), int(text) if text.isdecimal() else -1)
    if not field.least <= number <= field.most:
        names = f" or {next(iter(field.names))} to {[*field.names][-1]}" if field.names else ""
        raise ValueError(f"{part!r} in the {field.name}: use {field.least} to {field.most}{names}")
    return number


def _interval(text: str) -> int:
    interval = int(seconds(text.strip()))
    if interval < 1:
        raise ValueError(f"{text!r} is too short: write at least 1s")
    return interval
