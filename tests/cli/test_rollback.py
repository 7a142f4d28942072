"""What `headgate rollback` writes, and what it says when it can't."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import pytest
import yaml
from msgspec import structs
from tests.history.objects import contents, owned, website_split
from tests.make.objects import service
from tests.processes import Ran

from headgate.cli import rollback
from headgate.cli.inspect_client import InspectClient
from headgate.errors import Conflict, HeadgateError, Invalid, NotFound
from headgate.history.records import object_in
from headgate.history.restoration import restorations
from headgate.resources.inspect import ObjectName
from headgate.resources.revisions import RestorationStep, RevisionRestoration

SPLITS = "/apis/split.smi-spec.io/v1alpha4/namespaces/default/trafficsplits"
SERVICES = "/api/v1/namespaces/default/services"
STORED = {"uid": "1", "resourceVersion": "7"}


def steps(present: Sequence[Any], past: Sequence[Any]) -> tuple[RestorationStep, ...]:
    """Return the steps from the present objects to the past ones, as the inspect API serves them."""
    return tuple(
        RestorationStep(
            verb=item.verb,
            object=structs.replace(item.key, namespace="default"),
            present=object_in(item.present) if item.present else None,
            wanted=object_in(item.wanted) if item.wanted else None,
            skip_message=item.skipped,
        )
        for item in restorations(contents(*present), contents(*past))
    )


class Server:
    """A client of an API server with some objects. It refuses the real or the dry write of the paths in `refusals`."""

    namespace = "default"

    def __init__(self, *objects: Any, refusals: Mapping[tuple[str, bool], HeadgateError] | None = None) -> None:
        paths = {"TrafficSplit": SPLITS, "Service": SERVICES}
        self.objects = {f"{paths[obj['kind']]}/{obj['metadata']['name']}": obj for obj in objects}
        self.refusals = refusals or {}
        self.writes: list[str] = []
        self.dry_runs: list[str] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def get(self, path: str) -> Any:
        if path not in self.objects:
            raise NotFound(path)
        obj = self.objects[path]
        return {**obj, "metadata": {**obj["metadata"], **STORED}}

    async def post(self, path: str, obj: Any, **query: str) -> None:
        assert query.pop("fieldManager") == "headgate-rollback"
        self._write(f"POST {path}/{obj['metadata']['name']}", dry=query == {"dryRun": "All"})

    async def put(self, path: str, obj: Any, **query: str) -> None:
        assert (query.pop("fieldManager"), obj["metadata"]["resourceVersion"]) == ("headgate-rollback", "7")
        self._write(f"PUT {path}", dry=query == {"dryRun": "All"})

    async def remove(self, path: str, options: Any) -> None:
        assert options["preconditions"] == STORED
        self._write(f"DELETE {path}", dry=options.get("dryRun") == ["All"])

    def _write(self, write: str, *, dry: bool) -> None:
        if (write, dry) in self.refusals:
            raise self.refusals[write, dry]
        (self.dry_runs if dry else self.writes).append(write)


PRESENT = (website_split(weight=50), service("new"))
PAST = (website_split(), service("old"))
ALL = [f"POST {SERVICES}/old", f"PUT {SPLITS}/website", f"DELETE {SERVICES}/new"]


def apply(server: Server) -> list[str]:
    return asyncio.run(rollback._apply(server, steps(PRESENT, PAST)))  # type: ignore[arg-type]


def test_all_writes_are_dry_runs_first() -> None:
    server = Server(*PRESENT)
    assert apply(server) == ["service/old created", "trafficsplit/website restored", "service/new deleted"]
    assert (server.dry_runs, server.writes) == (ALL, ALL)


def test_nothing_is_written_if_one_write_is_refused() -> None:
    server = Server(*PRESENT, refusals={(ALL[1], True): Invalid()})
    with pytest.raises(HeadgateError, match=r"trafficsplit/website: .*; nothing was written"):
        apply(server)
    assert server.writes == []


def test_nothing_is_written_if_an_object_has_changed_in_the_meantime() -> None:
    for objects in ((website_split(weight=49), service("new")), (*PRESENT, service("old")), PRESENT[:1]):
        server = Server(*objects)
        with pytest.raises(Conflict, match="has changed in the meantime; nothing was written"):
            apply(server)
        assert (server.writes, server.dry_runs) == ([], [])


def test_a_failure_between_the_writes_names_what_was_written() -> None:
    server = Server(*PRESENT, refusals={(ALL[1], False): Conflict("it was modified")})
    message = (
        "trafficsplit/website: it was modified; written before: service/old created; "
        "not written: trafficsplit/website, service/new"
    )
    with pytest.raises(HeadgateError) as caught:
        apply(server)
    assert (str(caught.value), server.writes) == (message, ALL[:1])


@pytest.fixture
def mesh(monkeypatch: pytest.MonkeyPatch) -> Server:
    """A mesh whose objects differ from those of each revision, also one of a controller."""
    server = Server(*PRESENT)

    async def restoration(_client: InspectClient, number: int, namespace: str) -> RevisionRestoration:
        found = steps((*PRESENT, owned(10)), (*PAST, owned(90)))
        return RevisionRestoration(
            metadata=ObjectName(name=str(number), namespace=namespace), record_time="then", steps=found
        )

    monkeypatch.setattr(InspectClient, "of", classmethod(lambda cls, *_, **__: cls(server)))
    monkeypatch.setattr(InspectClient, "restoration", restoration)
    return server


def test_a_dry_run_prints_manifests_and_deletions(mesh: Server, run: Callable[..., Ran]) -> None:
    done = run("rollback", "3", "--dry-run")
    assert (done.code, mesh.writes, mesh.dry_runs) == (0, [], [])
    assert "# kubectl delete service -n default new" in done.out
    objects = [document for document in yaml.safe_load_all(done.out) if document]
    assert [(obj["kind"], obj["metadata"]["name"]) for obj in objects] == [
        ("Service", "old"),
        ("TrafficSplit", "website"),
    ]
    assert "trafficsplit/owned is left as it is: Canary website controls it" in done.err


def test_only_the_named_objects_are_restored(mesh: Server, run: Callable[..., Ran]) -> None:
    assert run("rollback", "3", "ts/website").out == "trafficsplit/website restored\n"
    assert mesh.writes == [ALL[1]]
    assert "nothing to restore: these objects are as at revision 3" in run("rollback", "3", "ts/other").err


def test_wrong_arguments_are_usage_errors(mesh: Server, run: Callable[..., Ran]) -> None:
    for words, text in (
        (["last"], "'last' is not a whole number"),
        (["3", "secret/a"], "the history does not record secrets"),
        (["3", "website"], "write KIND/NAME"),
        (["3", "-A", "-n", "shop"], "'-A': selects all namespaces; leave out -n"),
    ):
        done = run("rollback", *words)
        assert (done.code, text in done.err, mesh.writes) == (2, True, []), done.err
