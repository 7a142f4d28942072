"""Definitions that are there before headgate: what is written over them, and objects that can't be migrated."""

from typing import Any

import msgspec
import pytest
from tests.make.smi_definitions import ORIGINS, Origin, definition

from headgate.errors import Cause, Conflict, HeadgateError, Invalid, NotFound, Unavailable
from headgate.kubernetes.client import Page
from headgate.kubernetes.install import definitions as module
from headgate.kubernetes.install.custom_resources import mesh_kinds
from headgate.kubernetes.install.definitions import ADOPTED, LONGEST_ANNOTATION, Definitions, completed, is_own
from headgate.kubernetes.install.manifests import Values, manifests
from headgate.resources.kind import split_api_version
from headgate.resources.meta import Object
from headgate.resources.versions import as_version, to_hub

NAME = "trafficsplits.split.smi-spec.io"
LINKERD = ORIGINS[0].definitions[0]
SPLITS = "/apis/split.smi-spec.io/v1alpha4"
(OWN,) = (obj for obj in manifests(Values(image="headgate:1")) if obj["metadata"]["name"] == NAME)


def existing(obj: Object, *stored: str) -> Object:
    """Return a definition as the API server has it, with the versions in which objects are stored."""
    return {**obj, "status": {"storedVersions": list(stored)}}


def storage(obj: Object) -> list[str]:
    return [version["name"] for version in obj["spec"]["versions"] if version["storage"]]


def test_a_missing_definition_and_an_own_one_get_headgates_content() -> None:
    assert completed({}, OWN) == OWN
    assert completed(existing(OWN, "v1alpha4"), OWN) == OWN
    assert is_own(OWN)


def test_objects_stay_in_the_stored_version_of_another_mesh_until_a_replica_converts_them() -> None:
    before = existing(LINKERD, "v1alpha1")
    written = completed(before, OWN)
    assert storage(written) == ["v1alpha1"]
    assert [version["name"] for version in written["spec"]["versions"]] == [
        "v1alpha4",
        "v1alpha3",
        "v1alpha2",
        "v1alpha1",
    ]
    assert storage(completed(before, OWN, converts=True)) == ["v1alpha4"]
    assert storage(completed(existing(written, "v1alpha1"), OWN)) == ["v1alpha1"]
    assert storage(completed(existing({**written, "spec": OWN["spec"]}, "v1alpha1", "v1alpha4"), OWN)) == ["v1alpha4"]


def test_the_content_before_headgate_is_kept_in_an_annotation_until_the_uninstallation() -> None:
    written = completed(existing(LINKERD, "v1alpha1"), OWN)
    adoption = msgspec.json.decode(written["metadata"]["annotations"][ADOPTED])
    assert adoption == {"labels": {"linkerd.io/extension": "smi"}, "spec": LINKERD["spec"]}
    assert not is_own(written)
    assert completed(existing(written, "v1alpha4"), OWN)["metadata"] == written["metadata"]


@pytest.mark.parametrize("origin", ORIGINS, ids=lambda origin: origin.name)
def test_definitions_and_objects_of_each_project_get_headgates_version_and_theirs_again(origin: Origin) -> None:
    """`tests/cluster/migration/test_adoption.py` shows it on an API server, with some of the projects."""
    own = {obj["metadata"]["name"]: obj for obj in manifests(Values(image="headgate:1"))}
    for before in origin.definitions:
        if before["apiVersion"] == "apiextensions.k8s.io/v1":  # the API server converts earlier ones
            stored = storage(before)
            written = completed(existing(before, *stored), own[before["metadata"]["name"]])
            assert storage(written) == stored
            assert msgspec.json.decode(written["metadata"]["annotations"][ADOPTED])["spec"] == before["spec"]
    for obj in origin.objects:
        group, version = split_api_version(obj["apiVersion"])
        (kind,) = (kind for kind in mesh_kinds() if (kind.group, kind.kind) == (group, obj["kind"]))
        migrated = to_hub(obj)
        assert migrated["apiVersion"] == f"{group}/{kind.versions[0]}"
        assert as_version(migrated, kind, group, version) == obj


def test_a_content_that_is_too_long_for_an_annotation_is_only_marked() -> None:
    long = definition("TrafficSplit", "v1alpha1", stored="v1alpha1", schema={"description": "x" * LONGEST_ANNOTATION})
    assert completed(existing(long, "v1alpha1"), OWN)["metadata"]["annotations"] == {ADOPTED: "true"}


def test_objects_in_an_unknown_version_are_an_error() -> None:
    newer = definition("TrafficSplit", "v1alpha4", "v1", stored="v1")
    with pytest.raises(HeadgateError, match=rf"{NAME} has objects in the version v1, which headgate does not know"):
        completed(existing(newer, "v1alpha4", "v1"), OWN)


class Server:
    """An API server with splits; each write of an object takes the next one of its `answers`, of which errors are raised."""

    def __init__(self, **answers: list[Exception]) -> None:
        self.answers = answers
        self.written: list[str] = []
        self.stored: Any = None

    async def get(self, path: str) -> Any:
        if path == SPLITS:
            return {"resources": [{"name": "trafficsplits"}]}
        return {"metadata": {"name": path.rpartition("/")[2]}}

    async def page(self, path: str, query: Any, *, metadata_only: bool) -> Page:
        assert (path, metadata_only) == (f"{SPLITS}/trafficsplits", True)
        names = list(self.answers)[::2] if "continue" not in query else list(self.answers)[1::2]
        page = {
            "items": [{"metadata": {"namespace": "shop", "name": name}} for name in names],
            "metadata": {} if "continue" in query else {"continue": "more"},
        }
        return msgspec.json.decode(msgspec.json.encode(page), type=Page)

    async def put(self, path: str, obj: Any) -> Any:
        if failures := self.answers[obj["metadata"]["name"]]:
            raise failures.pop(0)
        self.written.append(path)

    async def merge(self, path: str, patch: Any) -> Any:
        self.stored = path.rpartition("/")[2], patch


async def test_each_object_is_written_again_and_conflicts_are_retried() -> None:
    server = Server(a=[], b=[Conflict("changed")], c=[NotFound("deleted")])
    outcome = await Definitions(server).migrate(OWN)  # type: ignore[arg-type]
    assert outcome == "migrated: 3 objects are stored in v1alpha4"
    assert sorted(server.written) == [f"{SPLITS}/namespaces/shop/trafficsplits/{name}" for name in "ab"]
    assert server.stored == ("status", {"status": {"storedVersions": ["v1alpha4"]}})


async def test_an_object_that_the_api_server_rejects_is_named_and_its_version_stays_a_stored_one() -> None:
    server = Server(a=[Invalid(Cause("spec.backends[0].weight", "must be an integer"))], b=[])
    outcome = await Definitions(server).migrate(OWN)  # type: ignore[arg-type]
    assert outcome.startswith("keeps several stored versions, because objects can't be written in v1alpha4")
    assert outcome.endswith("shop/a: spec.backends[0].weight: must be an integer")
    assert len(server.written) == 1
    assert server.stored is None


def converted_by(service: str, obj: Object = OWN) -> Object:
    """Return a definition whose objects a Service converts, with the CA bundle of the control plane."""
    client = {"service": {"namespace": "headgate-system", "name": service}, "caBundle": "Uk9PVFM="}
    conversion = {**obj["spec"]["conversion"], "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}
    return {**obj, "spec": {**obj["spec"], "conversion": conversion}}


def converting_service(obj: Object) -> str:
    client = obj["spec"]["conversion"]["webhook"]["clientConfig"]
    assert "caBundle" not in client  # it belongs to the control plane
    return str(client["service"]["name"])


def test_the_replicas_of_an_earlier_headgate_convert_objects_until_the_new_ones_do() -> None:
    """The Service that the new definition names does not exist yet, and it has no replica."""
    before = existing(converted_by("headgate-webhooks"), "v1alpha4")
    assert converting_service(completed(before, OWN)) == "headgate-webhooks"
    assert converting_service(completed(before, OWN, converts=True)) == "headgate-conversion"
    same = converted_by("headgate-conversion")
    assert completed(existing(same, "v1alpha4"), same) == same  # with the CA bundle of its own
    foreign = {**before, "metadata": LINKERD["metadata"]}
    assert converting_service(completed(foreign, OWN)) == "headgate-conversion"
    unconverted = existing({**OWN, "spec": {**OWN["spec"], "conversion": {"strategy": "None"}}}, "v1alpha4")
    assert converting_service(completed(unconverted, OWN)) == "headgate-conversion"


class Stored:
    """An API server with one definition, which records what is written into it."""

    def __init__(self, obj: Object) -> None:
        self.obj = obj
        self.written: list[Object] = []

    async def get(self, _path: str) -> Object:
        return self.obj

    async def merge(self, _path: str, patch: Object) -> Object:
        self.obj = {**self.obj, "spec": {**self.obj["spec"], **patch["spec"]}}
        return self.obj

    async def put(self, _path: str, obj: Object) -> Object:
        self.written.append(obj)
        return obj


async def test_a_definition_whose_objects_an_earlier_replica_converts_is_migrated_without_a_write_of_objects() -> None:
    earlier = Definitions(Stored(existing(converted_by("headgate-webhooks"), "v1alpha4")))  # type: ignore[arg-type]
    assert await earlier.needs_migration(OWN)
    assert await earlier.migrate(OWN) == "configured: the new replicas convert its objects"
    now = Definitions(Stored(existing(converted_by("headgate-conversion", OWN), "v1alpha4")))  # type: ignore[arg-type]
    assert not await now.needs_migration(
        converted_by("headgate-conversion")
    )  # the CA bundle of the control plane is no difference


async def test_a_definition_with_several_versions_that_was_never_migrated_is_given_back() -> None:
    """Its content before headgate has all versions in which objects are stored."""
    before = definition("TrafficSplit", "v1alpha1", "v1alpha2", stored="v1alpha2")
    adopted = existing(completed(existing(before, "v1alpha1", "v1alpha2"), OWN), "v1alpha1", "v1alpha2")
    server = Stored(adopted)
    outcome = await Definitions(server).release(OWN)  # type: ignore[arg-type]
    assert outcome == "kept: it was there before headgate, and has its earlier content again"
    (restored,) = server.written
    assert restored["spec"] == before["spec"]
    migrated = Stored(existing(adopted, "v1alpha2", "v1alpha4"))
    outcome = await Definitions(migrated).release(OWN)  # type: ignore[arg-type]
    assert outcome.startswith("kept with headgate's content: its objects are stored in v1alpha2 and v1alpha4")


async def test_objects_that_can_not_be_written_for_some_time_are_failures_and_many_of_them_end_the_attempts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A webhook of another mesh that fails closed, and whose server is gone, refuses each write with an error 500."""
    monkeypatch.setattr(module, "REWRITE_S", 0)
    monkeypatch.setattr(module, "MOST_WRITES", 1)
    dead = Unavailable('failed calling webhook "smi.example"')
    server = Server(**{f"s{number:02}": list[Exception]([dead] * 3) for number in range(14)})
    outcome = await Definitions(server).migrate(OWN)  # type: ignore[arg-type]
    assert outcome.endswith("and 4 more")
    assert outcome.count('failed calling webhook "smi.example"') == module.MOST_SHOWN
    assert server.stored is None
    assert sum(len(failures) < 3 for failures in server.answers.values()) == module.MOST_SHOWN
