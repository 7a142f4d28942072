"""Records of the callers of each port in the last 7 days, and of the calls that an audit would refuse."""

import msgspec

from headgate.telemetry.access_records import (
    KEPT_S,
    SWEEP_S,
    AccessCheckpoint,
    AccessRecords,
    Call,
    CallKey,
)
from headgate.telemetry.counters import counts
from headgate.telemetry.counters.counts import Counts, class_index
from headgate.telemetry.counters.flows import Flow, Peer

SERVER = "spiffe://a/ns/shop/sa/server"


def key(caller: str = "buyer", port: int = 80) -> CallKey:
    return CallKey(caller=caller, destination=SERVER, port=port, protocol="HTTP")


def flow(caller: str = "buyer", port: int = 80) -> Flow:
    return Flow(source=Peer(pod=caller), destination=Peer(pod="shop/server"), target=port)


def requests(number: int, *, audited: int = 0, denied: int = 0) -> Counts:
    return Counts.of({class_index(200): number, counts.AUDITED: audited, counts.DENIED_REQUESTS: denied})


def connections(number: int, *, denied: int = 0) -> Counts:
    return Counts.of({counts.CONNECTIONS: number, counts.DENIED_CONNECTIONS: denied})


class Rules:
    """What the rules of the server say about all calls; a `FindCall`."""

    def __init__(self, audit: str = "") -> None:
        self.audit = audit
        self.opens = self.allow_connections = True
        self.has_sidecar = True

    def __call__(self, flow: Flow, _has_connections: object) -> Call | None:
        return (
            Call(
                key=key(flow.source.pod, flow.target),
                audit=self.audit,
                opens=self.opens,
                rules_allow_connections=self.allow_connections,
            )
            if self.has_sidecar
            else None
        )


def found(records: AccessRecords, now: float = 0.0) -> dict[tuple[str, int, str], tuple[int, int]]:
    """Return the number of calls, and of those that an audit would refuse, by caller, port and protocol."""
    return {
        (item.caller, item.port, item.protocol): (record.count, record.audited)
        for item, record in records.recent(now).items()
    }


def test_allowed_requests_and_connections_count_by_caller_port_and_protocol():
    records = AccessRecords(Rules(), now=0)
    records.add(flow(), requests(3), 1)
    records.add(flow(), requests(2, denied=4), 2)
    records.add(flow("thief"), requests(0, denied=1), 3)
    records.add(flow("thief", 90), connections(2, denied=1), 4)
    assert found(records) == {("buyer", 80, "HTTP"): (5, 0), ("thief", 90, "TCP"): (1, 0)}
    assert [(item.first, item.last) for item in records.recent(0).values()] == [(1, 2), (4, 4)]


def test_a_destination_without_a_sidecar_is_not_recorded():
    rules = Rules()
    rules.has_sidecar = False
    records = AccessRecords(rules, now=0)
    records.add(flow(), requests(3), 1)
    assert found(records) == {}


def test_connections_that_a_closed_destination_refuses_are_not_recorded():
    """The client's proxy counts a connection before the server refuses the handshake."""
    rules = Rules()
    rules.opens = rules.allow_connections = False
    records = AccessRecords(rules, now=0)
    records.add(flow(), connections(3), 1)
    assert found(records) == {}


def test_an_audit_counts_marked_requests_and_connections_without_a_rule():
    rules = Rules(audit="v1")
    rules.allow_connections = False
    records = AccessRecords(rules, now=0)
    records.add(flow(), requests(3, audited=2), 1)
    records.add(flow(port=90), connections(4), 2)
    assert found(records) == {("buyer", 80, "HTTP"): (3, 2), ("buyer", 90, "TCP"): (4, 4)}
    assert {item.caller for item, _ in records.audited()} == {"buyer"}


def test_marks_count_only_for_an_audited_destination():
    """A server without a sidecar may send any header."""
    records = AccessRecords(Rules(), now=0)
    records.add(flow(), requests(3, audited=3), 1)
    assert found(records) == {("buyer", 80, "HTTP"): (3, 0)}


def test_changed_rules_begin_the_counts_of_an_audit_again():
    rules = Rules(audit="v1")
    records = AccessRecords(rules, now=0)
    records.add(flow(), requests(3, audited=2), 1)
    rules.audit = "v2"
    assert records.audit(SERVER, "v2") is None
    records.add(flow(), requests(1, audited=1), 9)
    audit = records.audit(SERVER, "v2")
    assert audit is not None
    assert audit.since == 9
    assert records.audit(SERVER, "v1") is None
    assert found(records) == {("buyer", 80, "HTTP"): (4, 1)}


def test_the_first_denied_request_after_an_audit_ends_its_counts():
    rules = Rules(audit="v1")
    records = AccessRecords(rules, now=0)
    records.add(flow(), requests(3, audited=2), 1)
    rules.audit = ""
    records.add(flow(), requests(0, denied=1), 2)
    assert records.audit(SERVER, "v1") is None
    assert not list(records.audited())


def test_records_expire_after_seven_days_without_a_call():
    records = AccessRecords(Rules(), now=0)
    records.add(flow(), requests(1), 0)
    records.add(flow("late"), requests(1), KEPT_S)
    assert found(records, KEPT_S + 1) == {("late", 80, "HTTP"): (1, 0)}


def test_a_full_record_says_since_when_calls_are_missing_until_expired_records_make_room():
    records = AccessRecords(Rules(), now=0, most=1)
    records.add(flow(), requests(1), 0)
    records.add(flow("late"), requests(1), SWEEP_S)
    assert (records.lost, list(found(records))) == (SWEEP_S, [("buyer", 80, "HTTP")])
    later = KEPT_S + 2 * SWEEP_S
    records.add(flow("late"), requests(1), later)
    assert (records.lost, list(found(records, later))) == (0, [("late", 80, "HTTP")])


def test_a_restart_continues_records_and_audits():
    rules = Rules(audit="v1")
    before = AccessRecords(rules, now=5)
    before.add(flow(), requests(3, audited=2), 6)
    saved = msgspec.msgpack.decode(msgspec.msgpack.encode(before.checkpoint()), type=AccessCheckpoint)
    after = AccessRecords(rules, now=100)
    after.restore(saved)
    after.add(flow(), requests(1, audited=1), 101)
    assert found(after) == {("buyer", 80, "HTTP"): (4, 3)}
    assert after.began == 5
    audit = after.audit(SERVER, "v1")
    assert audit is not None
    assert audit.since == 6


def test_a_checkpoint_keeps_its_values_while_more_calls_are_recorded():
    records = AccessRecords(Rules(), now=0)
    records.add(flow(), requests(1), 1)
    saved = records.checkpoint()
    records.add(flow(), requests(1), 2)
    restored = AccessRecords(Rules(), now=0)
    restored.restore(saved)
    assert found(restored) == {("buyer", 80, "HTTP"): (1, 0)}


def test_an_empty_checkpoint_has_no_records():
    records = AccessRecords(Rules(), now=7)
    records.restore(AccessCheckpoint())
    assert (found(records), records.began) == ({}, 7)
