"""What `headgate history` prints."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.processes import Ran

from headgate.cli.inspect_client import InspectClient
from headgate.errors import NotFound
from headgate.resources.inspect import ObjectName
from headgate.resources.meta import Key
from headgate.resources.revisions import ChangedField, ObjectChange, ObjectWrite, Revision, RevisionList

TIME = "2026-01-31T12:00:00Z"
WEIGHT = ChangedField(path="spec.backends[v1].weight", before=90, after=50)
LABEL = ChangedField(path="metadata.labels.team", after="shop")
GONE = ChangedField(path="spec.matches", before=[{"name": "beta"}])

FIRST = "2026-01-31T11:58:00Z"
ALL = {"kind": "HTTPRouteGroup", "name": "all-requests"}
LOOK = {"kind": "HTTPRouteGroup", "name": "books", "matches": ["look"]}
RULE = ChangedField(path="spec.rules[all-requests]", before=ALL, after=LOOK)
STEPS = tuple(ObjectWrite(write_time=time, fields=(WEIGHT,)) for time in ("2026-01-31T11:59:00Z", TIME))


def change(action: Any, *fields: ChangedField, name: str = "website", by: str = "helm", **more: Any) -> ObjectChange:
    ref = Key("split.smi-spec.io", "TrafficSplit", "default", name)
    return ObjectChange(object=ref, action=action, by=by, write_time=TIME, fields=fields, **more)


def revision(number: int, *changes: ObjectChange, reason: str = "Written", effect: tuple[str, ...] = ()) -> Revision:
    metadata = ObjectName(name=str(number))
    return Revision(
        metadata=metadata,
        revision=number,
        record_time=TIME,
        reason=reason,
        changes=changes,
        effect_messages=effect,
    )


REVISIONS = (
    revision(1, reason="RecordingStarted"),
    revision(2, change("Changed", WEIGHT, LABEL, GONE), effect=("40% move", "10% more")),
    revision(3, change("Created"), change("Deleted", name="old", by="")),
    revision(4, change("Changed", WEIGHT, writes=7, by="headgate-rollout"), reason="ControllerWrote"),
    revision(5, change("Deleted", by=""), reason="NotRecorded"),
    revision(6, change("Created", WEIGHT, writes=3, first_write_time=FIRST, steps=STEPS), reason="ControllerWrote"),
    revision(7, change("Changed", RULE)),
)


class Client:
    """A client whose kubeconfig has the namespace `default`; it records the queries."""

    namespace = "default"

    def __init__(self) -> None:
        self.queries: list[tuple[str, Mapping[str, str]]] = []


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    found = Client()

    async def revisions(_client: InspectClient, namespace: str, query: Mapping[str, str]) -> RevisionList:
        found.queries.append((namespace, query))
        return RevisionList(items=() if query.get("name") == "none" else REVISIONS, older=2)

    async def one(_client: InspectClient, number: int, namespace: str) -> Revision:
        if number > len(REVISIONS):
            raise NotFound(f"revision {number} not found in {namespace}")
        return REVISIONS[number - 1]

    monkeypatch.setattr(InspectClient, "of", classmethod(lambda cls, *_: cls(found)))
    monkeypatch.setattr(InspectClient, "revisions", revisions)
    monkeypatch.setattr(InspectClient, "revision", one)
    return found


def test_the_list_has_a_line_for_each_revision(client: Client, run: Callable[..., Ran]) -> None:
    done = run("history")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    none = " none on requests and access"
    assert lines == [
        "REVISION TIME BY CHANGE EFFECT",
        f"1 {TIME} - recording began",
        f"2 {TIME} helm trafficsplit/website spec.backends[v1].weight 90 -> 50 and 2 more fields 40% move (and 1 more)",
        f"3 {TIME} helm trafficsplit/website and 1 other object: 1 created, 1 deleted{none}",
        f"4 {TIME} headgate-rollout trafficsplit/website spec.backends[v1].weight 90 -> 50 in 7 writes{none}",
        f"5 {TIME} - trafficsplit/website deleted (while headgate did not record){none}",
        f"6 {TIME} helm trafficsplit/website created in 3 writes since {FIRST}{none}",
        (
            f"7 {TIME} helm trafficsplit/website spec.rules[all-requests] "
            f'{{"name": "all-requests"}} -> {{"name": "books", "matches": ["look"]}}{none}'
        ),
    ]
    assert "2 older revisions not shown; --limit 0 lists all" in done.err
    assert client.queries == [("default", {"newest": "30"})]


def test_a_revision_has_its_fields_and_its_effect(client: Client, run: Callable[..., Ran]) -> None:
    assert run("history", "2").out.splitlines()[1:] == [
        "",
        f"trafficsplit/website in default changed by helm at {TIME}",
        "  spec.backends[v1].weight: 90 -> 50",
        '  + metadata.labels.team: "shop"',
        '  - spec.matches: [{"name": "beta"}]',
        "",
        "Effect on requests and access",
        "  40% move",
        "  10% more",
    ]
    missed = run("history", "5").out
    assert "no control plane recorded these changes" in missed
    assert f"deleted, by an unknown client at {TIME}" in missed
    assert run("history", "9").code == 1


def test_a_combined_revision_has_the_time_of_each_write(client: Client, run: Callable[..., Ran]) -> None:
    assert run("history", "6").out.splitlines()[2:10] == [
        f"trafficsplit/website in default created by helm from {FIRST} to {TIME}, 3 writes",
        "  spec.backends[v1].weight: 90 -> 50",
        "  writes, oldest first (the newest 2 of 3)",
        "  2026-01-31T11:59:00Z",
        "    spec.backends[v1].weight: 90 -> 50",
        f"  {TIME}",
        "    spec.backends[v1].weight: 90 -> 50",
        "",
    ]


def test_an_object_and_all_namespaces_can_be_selected(client: Client, run: Callable[..., Ran]) -> None:
    assert "trafficsplit/website in default deleted" in run("history", "ts/website", "-A", "--limit", "1").out
    assert "no revision changes such an object" in run("history", "ts/none", "-n", "shop").err
    kind = {"group": "split.smi-spec.io", "kind": "TrafficSplit"}
    assert client.queries == [
        ("", {"newest": "1", "name": "website", **kind}),
        ("shop", {"newest": "30", "name": "none", **kind}),
    ]


def test_wrong_arguments_are_usage_errors(client: Client, run: Callable[..., Ran]) -> None:
    for words, text in (
        (["last"], "neither the number of a revision nor KIND/NAME"),
        (["pod/web"], "the history does not record pods"),
        (["-A", "-n", "shop"], "leave out -n"),
    ):
        done = run("history", *words)
        assert (done.code, text in done.err, client.queries) == (2, True, []), done.err
