"""The values in the responses of the inspect API: sentences, times and numbers are in the fields that are made for them."""

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cli.living_mesh import LivingMesh, living
from tests.make import objects

from headgate.api.certificate import CertificateFiles
from headgate.cli.arguments import ApiOptions
from headgate.cli.connection import find_api
from headgate.resources.inspect import API_VERSION
from headgate.settings import Settings

TIME = re.compile(r"\d{4}-\d\d-\d\dT.*Z")
NOTATIONS = frozenset(("command", "example"))
"""Fields with a command line, or with a request as in one."""
USERS_VALUES = frozenset(("objects", "present", "wanted", "headers"))
PATHS = (
    *("meshstatuses", "meshstatuses/mesh", "proxies", "namespaces/headgate-system/proxies/gateway"),
    *("findings", "callrecords", "revisions", "revisions/1", "revisions/1/restoration"),
)
REQUEST = {
    "url": "http://web:80/",
    "caller": {"kind": "Deployment", "name": "web"},
    "headers": [{"name": "traceparent", "value": f"00-{'a' * 32}-{'b' * 16}-01"}],
}
WORLD = (
    objects.service("web", 80, selector={"app": "web"}),
    *(objects.service(name, 80, selector={"app": "web"}) for name in ("v1", "v2")),
    objects.deployment(
        "web", objects.container("app", 8080), labels={"app": "web"}, template={"labels": {"app": "web"}}
    ),
    objects.split("web", {"v1": 3, "v2": 1, "gone": 1}),
)
CHANGE = {"objects": [objects.split("web", {"v2": 1}, namespace="default")], "noNewAccess": True}


@pytest.fixture
async def mesh(tmp_path: Path, certificate: CertificateFiles) -> AsyncIterator[LivingMesh]:
    async with living(tmp_path / ".headgate", certificate, Settings()) as running:
        for obj in WORLD:
            await running.put(obj)
        await running.settled()
        yield running


def values(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value below a JSON value, with the name of its field; without the values that users write."""
    match value:
        case dict():
            for field, inner in value.items():
                if field not in USERS_VALUES:
                    yield from values(inner, field)
        case list():
            for inner in value:
                yield from values(inner, name)
        case _:
            yield name, value


def check(path: str, response: Mapping[str, Any]) -> None:
    found = list(values(response))
    assert found, path
    texts = [(name, value) for name, value in found if isinstance(value, str)]
    sentences = {name for name, value in texts if " " in value.strip()} - NOTATIONS
    assert {name for name in sentences if not name.lower().endswith(("message", "messages"))} == set(), path
    assert {name for name, value in texts if TIME.fullmatch(value) and not name.endswith("Time")} == set(), path
    assert not [name for name, value in found if isinstance(value, float)], path


async def test_sentences_times_and_numbers_are_in_fields_for_them(mesh: LivingMesh) -> None:
    client = find_api(ApiOptions(state=mesh.state))
    prefix = f"/apis/{API_VERSION}"
    async with client:
        responses = {path: await client.get(f"{prefix}/{path}") for path in PATHS}
        pod = next(name for name in mesh.objects.pods if name.startswith("default/web-"))
        path = f"namespaces/default/pods/{pod.partition('/')[2]}/sidecar"
        responses[path] = await client.get(f"{prefix}/{path}")
        explanation = await client.post(f"{prefix}/namespaces/default/explanations", {"spec": REQUEST})
        plan = await client.post(f"{prefix}/plans", {"spec": CHANGE})
    for path, response in (*responses.items(), ("explanations", explanation), ("plans", plan)):
        check(path, response)
    for path, kind in (("meshstatuses", "MeshStatus"), ("revisions", "Revision"), ("findings", "Finding")):
        assert responses[path]["kind"] == f"{kind}List"
        assert {item["kind"] for item in responses[path]["items"]} == {kind}
    assert (explanation["kind"], explanation["spec"]["url"]) == ("Explanation", "http://web:80/")
    assert explanation["status"]["trace"] == {"id": "a" * 32, "sampled": True, "recorded": False}
    assert [backend["share"] for backend in explanation["status"]["backends"]] != []
    assert (plan["kind"], plan["spec"]["noNewAccess"]) == ("Plan", True)
    assert [verdict["check"] for verdict in plan["status"]["verdicts"]] == ["NoNewAccess"]
    assert len(plan["status"]["differences"]["requests"]) == 1
