"""A command shows values of a newer control plane as their text: a severity, a state or a verdict that it does not know."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect
from tests.cli.conftest import ServedMesh
from tests.make import objects

from headgate.api.inspect.registry import RESOURCES
from headgate.cli.open_values import with_open_values
from headgate.cli.plan import exit_code
from headgate.cli.plan_text import show
from headgate.kubernetes.client import Client
from headgate.plan.planning import PlanStatus
from headgate.resources.inspect import FindingList, Severity
from headgate.resources.mesh.canary.types import CanarySpec

SHAPES = {
    shape.__name__: shape
    for resource in RESOURCES.values()
    for shape in (resource.shape, *(part.shape for part in resource.subresources.values()))
    if shape
} | {CanarySpec.__name__: CanarySpec}
UNKNOWN = "OfNextVersion"


SIMPLE: dict[type[inspect.Type], Any] = {
    inspect.LiteralType: UNKNOWN,
    inspect.EnumType: UNKNOWN,
    inspect.IntType: 1,
    inspect.FloatType: 1.5,
    inspect.BoolType: True,
    inspect.StrType: "text",
}


def answer(info: inspect.Type) -> Any:
    """Return a value of a type as JSON, in which every closed value is unknown to this version."""
    match info:
        case inspect.StructType(fields=fields):
            return {field.encode_name: answer(field.type) for field in fields}
        case inspect.UnionType(types=types):
            return answer(next(part for part in types if not isinstance(part, inspect.NoneType)))
        case inspect.CollectionType(item_type=part) | inspect.VarTupleType(item_type=part):
            return [answer(part)]
        case inspect.DictType(key_type=key, value_type=part):
            return {answer(key): answer(part)}
        case inspect.Metadata(type=part):
            return answer(part)
    return SIMPLE.get(type(info), {})


@pytest.mark.parametrize("name", SHAPES)
def test_a_response_with_unknown_values_is_decoded_and_keeps_them(name: str) -> None:
    shape = SHAPES[name]
    response = answer(inspect.type_info(shape))
    decoded = with_open_values(response, shape)
    assert isinstance(decoded, shape)
    assert msgspec.json.decode(msgspec.json.encode(decoded)) == response


def finding(severity: str) -> dict[str, Any]:
    about = {"group": "", "kind": "Service", "namespace": "default", "name": "web"}
    name = {"name": "f", "namespace": "default"}
    return {"metadata": name, "object": about, "severity": severity, "reason": "R", "field": "spec", "message": "m"}


def test_known_values_beside_an_unknown_one_stay_what_they_are() -> None:
    decoded = with_open_values({"objects": 1, "items": [finding("Fatal"), finding("Note")]}, FindingList)
    assert [row.severity.word for row in decoded.items] == ["fatal", "note"]
    assert decoded.items[1].severity is Severity.NOTE
    assert decoded.items[0].severity not in tuple(Severity)


def test_a_response_of_a_wrong_type_is_still_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"Expected `int`, got `str` - at `\$\.objects`"):
        with_open_values({"objects": "many", "items": [finding("Fatal")]}, FindingList)


def replaced(value: Any, fields: dict[str, str]) -> Any:
    """Return JSON in which these fields have other texts."""
    match value:
        case dict():
            return {
                name: fields[name] if isinstance(part, str) and name in fields else replaced(part, fields)
                for name, part in value.items()
            }
        case list():
            return [replaced(part, fields) for part in value]
    return value


@pytest.fixture
def _newer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the control plane answer as a newer one."""
    get, post = Client.get, Client.post
    fields = {"severity": "Fatal", "state": "Draining", "result": "Skipped"}

    async def altered_get(self: Client, path: str, **query: Any) -> Any:
        return replaced(await get(self, path, **query), fields)

    async def altered_post(self: Client, path: str, body: Any) -> Any:
        return replaced(await post(self, path, body), fields)

    monkeypatch.setattr(Client, "get", altered_get)
    monkeypatch.setattr(Client, "post", altered_post)
    return


@pytest.mark.usefixtures("_newer")
async def test_commands_show_the_values_of_a_newer_control_plane(served: ServedMesh) -> None:
    await served.store.create(objects.service("website", 8080))
    await served.store.create(objects.split("website", {"website-v1": 90, "website-v2": 10}))
    checked = await served.run("check")
    assert "fatal BackendNotFound TrafficSplit default/website" in checked.out
    assert " fatal" in checked.err  # the summary counts them
    assert "Draining" in (await served.run("proxies")).out
    assert "Skipped" in (await served.run("explain", "http://website:8080/")).out


def test_an_unknown_verdict_of_a_check_is_shown_and_is_not_success(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = {"check": "Always", "message": "every caller is allowed", "verdict": "Likely"}
    plan = with_open_values({"differences": {}, "verdicts": [verdict]}, PlanStatus)
    show(plan, only_checks=True)
    assert "Likely: every caller is allowed" in capsys.readouterr().out
    assert exit_code(plan) == 4
