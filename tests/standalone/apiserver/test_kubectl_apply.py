"""Server-side apply with the real kubectl: field managers, conflicts and removed fields."""

import json
from pathlib import Path
from typing import Any

from tests.embedded_api import EmbeddedApi
from tests.processes import Ran

from headgate.manifests.apply import apply
from headgate.manifests.files import read
from headgate.resources.registry import TRAFFIC_SPLIT

SPLIT = """
apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata: {name: website}
spec:
  service: website
  backends:
  - {service: website-v1, weight: 90}
  - {service: website-v2, weight: 10}
"""
LABELLED = SPLIT.replace("{name: website}", "{name: website, labels: {team: web}}")
ONE_BACKEND = """
apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata: {name: website}
spec:
  backends:
  - {service: website-v2, weight: 50}
"""


async def applied(api: EmbeddedApi, manifest: str, *options: str) -> Ran:
    return await api.kubectl("apply", "--server-side", *options, "-f", "-", stdin=manifest)


async def managers(api: EmbeddedApi) -> dict[str, Any]:
    """Return the fields of each manager."""
    managed = (await stored_split(api))["metadata"]["managedFields"]
    return {entry["manager"]: entry["fieldsV1"] for entry in managed}


async def stored_split(api: EmbeddedApi) -> Any:
    """Return the stored split. This costs less than a call of kubectl."""
    return await api.store.get(TRAFFIC_SPLIT.key("default", "website"))


async def test_an_apply_removes_a_field_that_the_manifest_no_longer_has(api: EmbeddedApi) -> None:
    assert (await applied(api, LABELLED)).code == 0
    assert (await stored_split(api))["metadata"]["labels"] == {"team": "web"}
    assert (await applied(api, SPLIT)).code == 0
    found = await stored_split(api)
    assert "labels" not in found["metadata"]
    assert [backend["weight"] for backend in found["spec"]["backends"]] == [90, 10]


async def test_a_conflict_names_the_manager_and_the_field_and_can_be_forced(api: EmbeddedApi) -> None:
    await applied(api, SPLIT)
    refused = await applied(api, ONE_BACKEND, "--field-manager=canary")
    assert refused.code == 1
    field = '.spec.backends[service="website-v2"].weight'
    assert f'Apply failed with 1 conflict: conflict with "kubectl": {field}' in refused.err
    assert (await applied(api, ONE_BACKEND, "--field-manager=canary", "--force-conflicts")).code == 0
    assert [backend["weight"] for backend in (await stored_split(api))["spec"]["backends"]] == [90, 50]
    owned = await managers(api)
    assert list(owned["canary"]["f:spec"]["f:backends"]) == ['k:{"service":"website-v2"}']
    again = await applied(api, SPLIT)
    assert f'conflict with "canary": {field}' in again.err


async def test_an_edit_owns_the_fields_that_it_changes(api: EmbeddedApi) -> None:
    await applied(api, SPLIT)
    patch = '{"spec": {"backends": [{"service": "website-v1", "weight": 1}, {"service": "website-v2", "weight": 10}]}}'
    await api.ok("patch", "ts", "website", "--type=merge", "-p", patch)
    refused = await applied(api, SPLIT)
    assert '.spec.backends[service="website-v1"].weight' in refused.err
    assert "using split.smi-spec.io/v1alpha4 at 2" in refused.err


async def test_a_user_can_switch_from_client_side_to_server_side_apply_and_back(
    api_of_each_kubectl: EmbeddedApi,
) -> None:
    api = api_of_each_kubectl
    await api.ok("apply", "-f", "-", stdin=LABELLED)
    moved = await applied(api, SPLIT.replace("weight: 90", "weight: 80"))
    assert moved.code == 0, moved.err
    found = await stored_split(api)
    assert [backend["weight"] for backend in found["spec"]["backends"]] == [80, 10]
    last = json.loads(found["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"])
    assert last["spec"]["backends"][0]["weight"] == 80
    await api.ok("apply", "-f", "-", stdin=SPLIT)  # back to client-side apply
    assert [backend["weight"] for backend in (await stored_split(api))["spec"]["backends"]] == [90, 10]


async def test_show_managed_fields_prints_the_managed_fields(api: EmbeddedApi) -> None:
    await applied(api, SPLIT)
    assert "managedFields" not in await api.ok("get", "ts", "website", "-o", "yaml")
    shown = await api.ok("get", "ts", "website", "-o", "yaml", "--show-managed-fields")
    assert "manager: kubectl\n" in shown
    assert "operation: Apply\n" in shown


async def test_kubectl_diff_shows_a_difference_and_writes_nothing(api: EmbeddedApi) -> None:
    await applied(api, LABELLED)
    shown = await api.kubectl("diff", "--server-side", "-f", "-", stdin=SPLIT.replace("weight: 90", "weight: 80"))
    assert shown.code == 1
    assert "+    weight: 80" in shown.out
    assert "-    team: web" in shown.out
    assert "serverside-applied (server dry run)" in (await applied(api, SPLIT, "--dry-run=server")).out
    assert (await stored_split(api))["metadata"]["labels"] == {"team": "web"}


async def test_a_server_side_apply_keeps_the_fields_that_the_manifest_directory_owns(
    api: EmbeddedApi, tmp_path: Path
) -> None:
    """If `headgate-files` owned the annotation `last-applied-configuration`, kubectl would take over its fields."""
    directory = tmp_path / "manifests"
    directory.mkdir()
    (directory / "split.yaml").write_text(LABELLED)
    await apply(api.store, read([directory]))
    forced = await applied(api, ONE_BACKEND, "--field-manager=canary", "--force-conflicts")
    assert forced.code == 0
    assert "migration" not in forced.err
    found = await stored_split(api)
    assert found["metadata"]["labels"] == {"team": "web"}
    assert [backend["weight"] for backend in found["spec"]["backends"]] == [90, 50]
    assert set(await managers(api)) == {"headgate-files", "canary"}
