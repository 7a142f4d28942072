"""The calls that TrafficTargets in audit mode would refuse: attribution to TrafficTargets, and when they are published."""

from msgspec import structs
from tests.plane.access_meshes import BUYER, GRANT, THIEF, shop_mesh

from headgate.compiler.report import Compiled, SelectedPods
from headgate.latest import Latest
from headgate.model.access import Access
from headgate.plane.access_audit import STEADY_S, AccessAuditor, outcomes
from headgate.plane.access_calls import CallFinder
from headgate.plane.status.audit import conditions, refused_calls
from headgate.plane.status.audit_outcome import AuditOutcome
from headgate.resources.audit_mode import RefusedCaller
from headgate.resources.meta import Key
from headgate.telemetry.access_records import AccessRecords
from headgate.telemetry.counters import counts
from headgate.telemetry.counters.counts import Counts, class_index
from headgate.telemetry.counters.flows import Flow, Peer

ONE, TWO = (Key("access.smi-spec.io", "TrafficTarget", "shop", name) for name in ("one", "two"))
TLS = Key("headgate.dev", "TLSConfig", "shop", "strict")
GRANTS = (structs.replace(GRANT, origin=ONE), structs.replace(GRANT, origin=TWO, sources=("spiffe://other",)))


def audited(*grants: object) -> Compiled:
    found = shop_mesh(Access(audited=True, grants=tuple(grants or GRANTS)))
    selected = tuple(SelectedPods(about=about, workloads=("shop/server",)) for about in (ONE, TLS, TWO))
    return structs.replace(found, report=structs.replace(found.report, selected=selected))


class Traffic:
    """The records of calls to the audited server."""

    def __init__(self) -> None:
        self.compiled = audited()
        self.now = 1000.0
        self._latest: Latest[Compiled | None] = Latest(self.compiled)
        self.records = AccessRecords(CallFinder(self._latest), now=0)
        self.auditor = AccessAuditor(self._latest, self.records, clock=lambda: self.now)

    def refuse(self, number: int, source: Peer) -> None:
        flow = Flow(source=source, destination=Peer(pod="shop/server"), target=80, secured=True)
        self.records.add(flow, Counts.of({class_index(200): number, counts.AUDITED: number}), 500)

    def published(self) -> AuditOutcome:
        self.auditor.publish(self.compiled)
        return self.auditor.outcomes.get()[ONE]


def refused(caller: str, calls: int, reason: str) -> RefusedCaller:
    return RefusedCaller(caller=caller, port=80, protocol="HTTP", calls=calls, reason=reason)


def test_a_refused_call_belongs_to_the_targets_that_name_its_caller_or_else_to_all():
    traffic = Traffic()
    traffic.refuse(2, Peer(outside=BUYER))
    traffic.refuse(3, Peer(outside=THIEF))
    traffic.refuse(1, Peer(outside="192.0.2.1"))
    found = outcomes(traffic.compiled, traffic.records)
    thief, plain = refused("shop/thief", 3, "NoTargetNamesCaller"), refused("192.0.2.1", 1, "NoIdentity")
    assert found.keys() == {ONE, TWO}
    assert found[ONE].callers == (thief, refused("shop/buyer", 2, "NoRuleMatches"), plain)
    assert found[TWO].callers == (thief, plain)


def test_counts_of_other_rules_are_not_shown():
    traffic = Traffic()
    traffic.refuse(2, Peer(outside=THIEF))
    assert outcomes(audited(GRANTS[0]), traffic.records)[ONE] == AuditOutcome()


def test_a_new_caller_and_noticeable_growth_are_published_at_once_and_other_changes_later():
    traffic = Traffic()
    traffic.refuse(100, Peer(outside=THIEF))
    assert traffic.published().calls == 100
    traffic.refuse(5, Peer(outside=THIEF))
    assert traffic.published().calls == 100
    traffic.now += STEADY_S
    assert traffic.published().calls == 105
    traffic.refuse(1, Peer(outside=THIEF))
    assert traffic.published().calls == 105
    traffic.refuse(50, Peer(outside=THIEF))
    assert traffic.published().calls == 156
    traffic.refuse(1, Peer(outside="192.0.2.1"))
    assert traffic.published().calls == 157


def test_the_condition_has_three_states():
    def condition(outcome: AuditOutcome) -> tuple[bool, str]:
        (found,) = conditions(outcome)
        return found.status, found.reason

    assert condition(AuditOutcome()) == (None, "NoCalls")
    assert condition(AuditOutcome(since=1.0)) == (False, "AllCallsAllowed")
    some = AuditOutcome(since=1.0, callers=(refused("shop/thief", 3, "NoTargetNamesCaller"),))
    assert condition(some) == (True, "CallsNotAllowed")
    assert list(conditions(None)) == []


def test_a_status_lists_at_most_20_callers_and_counts_the_calls_of_all():
    callers = tuple(refused(f"shop/{number}", 2, "NoTargetNamesCaller") for number in range(25))
    refused_part = refused_calls(AuditOutcome(since=1.0, callers=callers))
    assert refused_part
    assert (len(refused_part.callers), refused_part.omitted_callers, refused_part.calls) == (20, 5, 50)
    assert refused_calls(AuditOutcome()) is refused_calls(None) is None
