"""Canaries with the real kubectl: apply in both versions, get, describe, explain and errors (R109, D19)."""

import re
from typing import Any

from tests.embedded_api import AsgiClient, EmbeddedApi
from tests.make.rollouts import conditions_of
from tests.resources.canary import canary_with
from tests.resources.seeds import CANARY_004

from headgate.resources.registry import CANARY

ANALYZED = """
apiVersion: headgate.dev/v1beta1
kind: Canary
metadata: {name: website}
spec:
  service: website
  backends:
  - {service: website-v1, weight: 900m}
  - {service: website-v2, weight: 100m}
  analysis:
    canary: website-v2
    steps: [{share: 20%}, {share: 50%, pause: true}]
"""
STATUS = {
    "conditions": conditions_of("Progressing", "2 of 20 requests"),
    "step": 2,
    "stepCount": 4,
    "canaryShare": "20%",
}


async def test_the_canary_of_the_specification_is_applied_as_written(api: EmbeddedApi) -> None:
    """R109."""
    assert "created" in await api.ok("apply", "-f", "-", stdin=CANARY_004)
    assert "unchanged" in await api.ok("apply", "-f", "-", stdin=CANARY_004)
    weights = "jsonpath={.apiVersion} {.spec.backends[*].weight}"
    assert await api.ok("get", "canary", "my-canary", "-o", weights) == "headgate.dev/v1beta1 100m 900m"
    assert await api.ok("get", "barecanaries", "my-canary", "-o", weights) == "v1beta1 100m 900m"
    assert "configured" in await api.ok("apply", "-f", "-", stdin=CANARY_004.replace("100m", "1"))
    assert await api.ok("get", "canary", "my-canary", "-o", weights) == "headgate.dev/v1beta1 1 900m"


async def test_absent_fields_get_their_defaults(api: EmbeddedApi) -> None:
    """As on a cluster, by the same schema."""
    await api.ok("apply", "-f", "-", stdin=ANALYZED)
    fields = "{.interval} {.minRequests} {.errorProbability} {.dryRun} {.success.margin} {.steps[*].pause}"
    shown = await api.ok("get", "canary", "website", "-o", f"jsonpath={fields.replace('{.', '{.spec.analysis.')}")
    assert shown == "1m 20 1% false 1% false true"
    assert await api.ok("diff", "-f", "-", stdin=ANALYZED) == ""


async def test_server_side_apply_keeps_the_backends_of_other_managers(api: EmbeddedApi) -> None:
    assert "serverside-applied" in await api.ok("apply", "--server-side", "-f", "-", stdin=ANALYZED)
    paused = ANALYZED.partition("spec:")[0] + "spec: {paused: true}\n"
    await api.ok("apply", "--server-side", "--field-manager=gates", "-f", "-", stdin=paused)
    shown = await api.ok("get", "canary", "website", "-o", "jsonpath={.spec.paused} {.spec.backends[*].service}")
    assert shown == "true website-v1 website-v2"


async def test_get_shows_the_state_of_the_rollout(api: EmbeddedApi) -> None:
    await api.ok("apply", "-f", "-", stdin=ANALYZED)
    metadata = {"name": "website", "namespace": "default"}
    written = {"apiVersion": CANARY.hub, "kind": CANARY.kind, "metadata": metadata, "status": STATUS}
    await api.store.update(written, subresource="status")
    titles, row = (await api.ok("get", "canaries")).splitlines()
    assert titles.split() == [
        "NAME",
        "SERVICE",
        "ROLLOUT",
        "STEP",
        "CANARY-SHARE",
        "ACCEPTED",
        "PROGRAMMED",
        "AGE",
    ]
    assert row.split()[:7] == ["website", "website", "Progressing", "2", "20%", "True", "True"]
    assert "2 of 20 requests" in await api.ok("get", "canary", "website", "-o", "wide")
    described = await api.ok("describe", "canary", "website")
    assert re.search(r"(?s)Canary: +website-v2.*Weight: +900m.*Reason: +Progressing", described)


async def test_explain_describes_the_fields(api: EmbeddedApi) -> None:
    """`test_openapi` has further fields."""
    explained = await api.ok("explain", "canary.spec.analysis.steps")
    assert re.search(r"(?s)pause.*promotes", explained)


async def test_a_mistake_is_rejected_with_its_field_and_the_fix(api: EmbeddedApi) -> None:
    answer = await api.kubectl("apply", "-f", "-", stdin=ANALYZED.replace("share: 20%", "share: 60%"))
    assert "spec.analysis.steps[1].share" in answer.err
    assert "must be above the share of the step before, 60%" in answer.err


async def test_a_canary_that_is_its_own_backend_is_rejected(client: AsgiClient) -> None:
    """R18."""
    own: Any = canary_with(backends=[{"service": "website", "weight": 9}, {"service": "website-v2", "weight": 1}])
    own["metadata"] = {"name": "website"}
    answer = await client.call("POST", "/apis/headgate.dev/v1beta1/namespaces/default/canaries", own)
    assert answer.code == 422
    assert "spec.backends[0].service" in answer.body["message"]
