"""Changes between two states, and the objects at each revision."""

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.history.objects import TIME, contents, owned, records, website_split
from tests.make.objects import service

from headgate.history.records import Record
from headgate.history.revisions import (
    MOST_EARLIER,
    MOST_EARLIER_BYTES,
    Log,
    RecordedChange,
    RecordedRevision,
    changes_between,
    with_controllers,
)
from headgate.resources.meta import Key, epoch_seconds
from headgate.resources.registry import SERVICE, TRAFFIC_SPLIT

NOW = epoch_seconds(TIME) + 60
WEBSITE = TRAFFIC_SPLIT.key("default", "website")
LATER = "2026-01-31T12:00:30Z"


def clients(before: Mapping[Key, Record], now: Mapping[Key, Record]) -> list[tuple[str, str, bool]]:
    """Return name, writer and existence of the objects that clients changed."""
    found = changes_between(before, now, NOW)
    assert not found.by_controllers
    return [(change.key.name, change.by, change.content is not None) for change in found.by_clients]


def test_changes_name_the_writer_and_deletions_do_not() -> None:
    before = records(website_split(), website_split("old"))
    now = records(website_split(weight=50, by="kubectl-edit", time=LATER), website_split("new", time=LATER))
    expected = [("new", "kubectl", True), ("old", "", False), ("website", "kubectl-edit", True)]
    assert clients(before, now) == expected


def test_a_write_without_an_effect_on_the_content_is_no_change() -> None:
    assert clients(records(website_split()), records(website_split(by="other", time=LATER, resourceVersion="9"))) == []


def test_a_change_without_a_new_entry_has_an_unknown_writer() -> None:
    """The removal of a field that another manager owns leaves no entry of its writer."""
    before, now = records(website_split(labels={"a": "b"})), records(website_split())
    assert clients(before, now) == [("website", "", True)]
    (change,) = changes_between(before, now, epoch_seconds(TIME)).by_clients
    assert change.by == "kubectl", "two writes within the second of the entry"


def test_of_two_writers_in_the_same_second_the_new_one_made_the_change() -> None:
    entries = [{"manager": name, "operation": "Update", "time": TIME} for name in ("argocd", "zed", "kubectl-edit")]
    now = records(website_split(weight=50, managedFields=entries))
    known = records(website_split(managedFields=[entries[0], entries[1]]))
    assert clients(known, now) == [("website", "kubectl-edit", True)]


def test_repeated_writes_of_a_controller_to_its_object_are_its_own() -> None:
    found = changes_between(records(owned(90)), records(owned(80, time=LATER)), NOW)
    assert ([change.by for change in found.by_controllers], found.by_clients) == (["headgate-rollout"], ())
    edited = changes_between(records(owned(90)), records(owned(10, by="kubectl-edit", time=LATER)), NOW)
    assert ([change.by for change in edited.by_clients], edited.by_controllers) == (["kubectl-edit"], ())


def test_later_writes_of_controllers_are_added_to_their_last_revision() -> None:
    keys = SERVICE.key("default", "a"), SERVICE.key("default", "b")
    last = RecordedRevision(
        number=4, time=TIME, reason="ControllerWrote", changes=(RecordedChange(key=keys[0], content=b"1", time=TIME),)
    )
    more = (RecordedChange(key=keys[0], content=b"2"), RecordedChange(key=keys[1], content=b"3"))
    found = with_controllers(last, more, LATER)
    assert (found.number, found.time) == (4, LATER)
    assert [(change.content, change.writes) for change in found.changes] == [(b"2", 2), (b"3", 1)]
    assert [(change.first_time, len(change.earlier)) for change in found.changes] == [(TIME, 1), ("", 0)]


@pytest.mark.parametrize(
    ("size", "kept"), [(1, MOST_EARLIER), (MOST_EARLIER_BYTES // 4, 4), (MOST_EARLIER_BYTES + 1, 0)]
)
def test_the_kept_writes_of_a_combined_revision_are_limited(size: int, kept: int) -> None:
    """A controller that writes all the time takes no more memory than the limits; the time of the first write stays."""
    revision = RecordedRevision(number=4, time=TIME, reason="ControllerWrote")
    for number in range(100):
        write = RecordedChange(key=WEBSITE, content=b"%d" % (number % 10) * size, time=f"at {number}")
        revision = with_controllers(revision, [write], LATER)
    (change,) = revision.changes
    assert [write.time for write in change.earlier] == [f"at {number}" for number in range(99 - kept, 99)]
    assert (change.writes, change.first_time, change.time) == (100, "at 0", "at 99")


def test_a_log_has_the_objects_at_each_kept_revision() -> None:
    first, second = contents(website_split(weight=90)), contents(website_split(weight=80))
    changes = (RecordedChange(key=WEBSITE, content=second[WEBSITE]),)
    log = Log(6, first, (RecordedRevision(number=7, time=TIME, reason="Written", changes=changes),))
    assert (log.at(6), log.at(7), log.at(8), log.last) == (None, second, None, 7)
    ((_, before),) = log.steps()
    assert before == first


_STATES = st.lists(
    st.dictionaries(
        st.sampled_from([SERVICE.key("default", name) for name in "abc"]), st.sampled_from([b"1", b"2", b"3"])
    ),
    min_size=1,
    max_size=8,
)


@given(_STATES)
def test_the_recorded_changes_reproduce_every_state(states: list[dict[Key, bytes]]) -> None:
    revisions: list[RecordedRevision] = []
    for before, now in itertools.pairwise(states):
        old, new = ({key: Record(content=data) for key, data in state.items()} for state in (before, now))
        changes = changes_between(old, new, NOW).by_clients
        revisions.append(RecordedRevision(number=len(revisions) + 1, time=TIME, reason="Written", changes=changes))
    log = Log(0, states[0], tuple(revisions))
    assert [log.at(number + 1) for number in range(len(revisions))] == states[1:]


def test_objects_are_compared_in_all_namespaces() -> None:
    before = records(service("a"))
    other = service("a", namespace="shop")
    found = changes_between(before, {**before, **records(other)}, NOW).by_clients
    assert [change.key for change in found] == [SERVICE.key("shop", "a")]
