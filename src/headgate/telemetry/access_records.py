"""Records of the calls that workloads received in the last 7 days, and of those that an audit would refuse.

A record is of one caller, destination, port and protocol, so its size does not depend on the number of requests. From the
records, `headgate generate` derives access rules, and `plane.access_audit` the counts of an audit.
"""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from headgate.resources.call_records import CallProtocol
from headgate.resources.meta import Value
from headgate.telemetry.counters.counts import Counts
from headgate.telemetry.counters.flows import Flow

KEPT_S = 7 * 86_400.0
MOST = 20_000
SWEEP_S = 600.0  # the least number of seconds between two searches for expired records


class CallKey(Value, frozen=True, kw_only=True, order=True, array_like=True, cache_hash=True):
    """What distinguishes records. `caller` is a SPIFFE ID or, for plaintext, a pod (`namespace/name`) or an address.

    `destination` is the SPIFFE ID of the called workload. `port` is that of the pod, 0 for ports of no Service.
    """

    caller: str
    destination: str
    port: int
    protocol: CallProtocol


class Call(Value, frozen=True, kw_only=True):
    """The calls of a flow. `key` is without protocol, that is, for HTTP.

    `audit` identifies the rules of the destination in audit mode; it is empty if the destination is not audited.
    `opens`: the destination accepts connections of the caller. `rules_allow_connections`: so do its access rules.
    """

    key: CallKey
    audit: str = ""
    opens: bool = True
    rules_allow_connections: bool = True


FindCall = Callable[[Flow, bool], Call | None]
"""A function that returns the calls of a flow; None if its destination has no sidecar.

The second argument says whether the flow has connections. Without connections, their fields of `Call` are not computed.
"""


def no_call(_flow: Flow, _has_connections: bool) -> None:  # noqa: FBT001 - a callback
    """Find no call, so that nothing is recorded."""


class AccessRecord(msgspec.Struct, array_like=True):
    """The allowed requests or connections of a key: the times of the first and the last, in seconds since the epoch.

    `audited` has those since the begin of the audit that its rules do not allow; `last_audited` is the time of the last.
    """

    first: float
    last: float
    count: int = 0
    audited: int = 0
    last_audited: float = 0.0


class Audit(Value, frozen=True, kw_only=True, array_like=True):
    """An audit of a destination: its `rules`, as in `Call.audit`, and its begin in seconds since the epoch."""

    rules: str
    since: float


class AccessCheckpoint(Value, frozen=True, kw_only=True):
    """The checkpoint of all records, which are encoded as MessagePack at once, because they change in place."""

    records: bytes = b"\x90"
    audits: dict[str, Audit] = msgspec.field(default_factory=dict)
    lost: float = 0.0
    began: float = 0.0


class AccessRecords:
    """Records of at most `most` keys. `began` is when recording began, in seconds since the epoch.

    `lost` is the last time at which a new key found no room; 0.0 if all calls of the last 7 days are recorded.
    """

    def __init__(self, find_call: FindCall, *, now: float, most: int = MOST) -> None:
        self.began = now
        self.lost = 0.0
        self._find_call = find_call
        self._most = most
        self._records: dict[CallKey, AccessRecord] = {}
        self._audits: dict[str, Audit] = {}
        self._swept = now

    def add(self, flow: Flow, counts: Counts, now: float) -> None:
        """Add the allowed requests and connections of a flow."""
        connections = counts.connections - counts.denied_connections
        call = self._find_call(flow, connections > 0)
        if call is None:
            return
        self._follow_audit(call.key.destination, call.audit, now)
        if requests := counts.success + counts.failure:
            self._add(call.key, requests, counts.audited if call.audit else 0, now)
        if connections > 0 and call.opens:
            refused = connections if call.audit and not call.rules_allow_connections else 0
            self._add(msgspec.structs.replace(call.key, protocol="TCP"), connections, refused, now)

    def audit(self, destination: str, rules: str) -> Audit | None:
        """Return the audit of a destination with these rules; None if it received no call since it has these rules."""
        audit = self._audits.get(destination)
        return audit if audit and audit.rules == rules else None

    def recent(self, now: float) -> Mapping[CallKey, AccessRecord]:
        """Return the records with a request or connection in the last 7 days, sorted by key."""
        pairs = ((key, self._records[key]) for key in sorted(self._records))
        return {key: record for key, record in pairs if record.last >= now - KEPT_S}

    def audited(self) -> Iterator[tuple[CallKey, AccessRecord]]:
        """Yield the records with calls that an audit would refuse."""
        return ((key, record) for key, record in self._records.items() if record.audited)

    def checkpoint(self) -> AccessCheckpoint:
        """Return all records, for `restore`."""
        records = msgspec.msgpack.encode(list(self._records.items()))
        return AccessCheckpoint(records=records, audits=dict(self._audits), lost=self.lost, began=self.began)

    def restore(self, saved: AccessCheckpoint) -> None:
        """Continue from the records of an earlier headgate. Call this before anything is recorded."""
        self._records = dict(msgspec.msgpack.decode(saved.records, type=list[tuple[CallKey, AccessRecord]]))
        self._audits = dict(saved.audits)
        self.lost, self.began = saved.lost, saved.began or self.began

    def _follow_audit(self, destination: str, rules: str, now: float) -> None:
        """Begin to count again if the rules of an audit have changed; empty rules end the audit."""
        audit = self._audits.get(destination)
        if rules == (audit.rules if audit else ""):
            return
        if rules:
            self._audits[destination] = Audit(rules=rules, since=now)
        else:
            del self._audits[destination]
        for key, record in self._records.items():
            if key.destination == destination:
                record.audited = 0

    def _add(self, key: CallKey, count: int, audited: int, now: float) -> None:
        record = self._records.get(key)
        if record is None:
            self._sweep(now)
            if len(self._records) >= self._most:
                self.lost = now
                return
            record = self._records[key] = AccessRecord(now, now)
        record.last = now
        record.count += count
        if audited:
            record.audited += audited
            record.last_audited = now

    def _sweep(self, now: float) -> None:
        """Remove expired records, and the audits of destinations without records."""
        if now < self._swept + SWEEP_S:
            return
        self._swept = now
        self._records = {key: record for key, record in self._records.items() if record.last >= now - KEPT_S}
        called = {key.destination for key in self._records}
        self._audits = {name: audit for name, audit in self._audits.items() if name in called}
        if self.lost < now - KEPT_S:
            self.lost = 0.0
