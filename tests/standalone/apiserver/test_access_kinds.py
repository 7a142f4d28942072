"""TrafficTargets, routes and TLSConfigs with the real kubectl: apply in every version, get, explain and errors."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from tests.embedded_api import AsgiClient, EmbeddedApi
from tests.resources.seeds import SEED_004

from headgate.manifests.documents import parse
from headgate.resources.versions import to_hub

ALLOWED = """
apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: {name: test}
spec:
  destination: {kind: ServiceAccount, name: sa-1, namespace: default}
  rules:
  - {kind: TCPRoute, name: tcp-route}
  - {kind: HTTPRouteGroup, name: http-route, matches: [version, health]}
  sources:
  - {kind: ServiceAccount, name: sa-2, namespace: default}
  - {kind: ServiceAccount, name: sa-3}
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: TCPRoute
metadata: {name: tcp-route}
spec: {matches: {ports: [8080, 9090]}}
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: UDPRoute
metadata: {name: dns}
spec: {matches: {ports: [53]}}
---
apiVersion: headgate.dev/v1beta1
kind: TLSConfig
metadata: {name: front}
spec:
  subjectNames: [foo, bar]
  selector: {matchLabels: {stage: production, role: frontend}}
"""
FLAT = """
apiVersion: access.smi-spec.io/v1alpha1
kind: TrafficTarget
metadata: {name: old}
destination: {kind: ServiceAccount, name: service-a, namespace: default, port: 8080}
specs:
- {kind: HTTPRouteGroup, name: the-routes, matches: [metrics]}
sources:
- {kind: ServiceAccount, name: prometheus, namespace: default}
"""
PORTLESS = """
apiVersion: specs.smi-spec.io/v1alpha1
kind: TCPRoute
metadata: {name: every}
"""

READ = [  # commands to run after ALLOWED is applied, each with a regular expression for its output
    (
        "get tt",
        r"NAME +DESTINATION +SOURCES +RULES +ACCEPTED .*\ntest +default/sa-1 +default/sa-2,sa-3 +tcp-route,http-route/ver",
    ),
    ("get tt -o wide", r" SELECTED +SIDECARS +PROXIES +ACKNOWLEDGED\ntest "),
    ("get tr", r"NAME +PORTS +AGE\ntcp-route +\[8080,9090\] +\d+s"),
    ("get ur", r"dns +\[53\] "),
    ("get tcproutes.specs.smi-spec.io -o name", "^tcproute.specs.smi-spec.io/tcp-route\n$"),
    ("get tcproutes.gateway.networking.k8s.io -o name", "^$"),
    (
        "get tlsconfigs",
        r"NAME +PODS +SUBJECT-NAMES +ACCEPTED .*\nfront +role=frontend,stage=production +foo,bar +\d+s",
    ),
    ("describe tt test", r"(?s)API Version: +access.smi-spec.io/v1alpha3.*Name: +sa-1.*Events: +<none>"),
    ("api-resources --api-group=access.smi-spec.io", r"traffictargets +tt +access.smi-spec.io/v1alpha3 +true +Traff"),
    ("api-resources --api-group=headgate.dev", r"tlsconfigs +tlsc +headgate.dev/v1beta1 +true +TLSConfig"),
    ("explain tt.spec.rules.matches", "all when absent"),
    ("explain tt.destination --api-version=access.smi-spec.io/v1alpha1", "port"),
]
MISTAKES = [
    (
        ALLOWED.replace("namespace: default}\n  rules", "namespace: other}\n  rules"),
        "spec.destination.namespace: is 'other', but",
    ),
    (ALLOWED.replace("name: dns}", "name: dns, namespace: none}"), "namespaces? .*none"),
    (
        ALLOWED.replace("name: tcp-route}\n  -", "name: tcp-route, matches: [a]}\n  -"),
        r"spec.rules\[0\].matches: is only possible for an HTTPR",
    ),
    (ALLOWED.replace("[8080, 9090]", "[0]"), r"spec.matches.ports\[0\]: must be from 1 to 65535"),
    (ALLOWED.replace("{matchLabels: {stage: production, role: frontend}}", "{}"), "matchLabels"),
    (ALLOWED.replace("v1alpha3", "v1alpha4"), "no matches for kind|v1alpha4"),
]


async def test_kubectl_reads_objects(api: EmbeddedApi) -> None:
    await api.ok("apply", "-f", "-", stdin=ALLOWED)
    for command, expected in READ:
        ran = await api.kubectl(*command.split(" "))
        assert re.search(expected, re.sub(r"\x1b\[[\d;]*m", "", ran.out)), (command, ran)
        assert ran.code == 0, (command, ran)
    assert (await api.ok("apply", "-f", "-", stdin=ALLOWED)).count(" unchanged") == 4


@pytest.mark.parametrize(("text", "message"), MISTAKES)
async def test_an_invalid_object_is_rejected_with_the_field(api: EmbeddedApi, text: str, message: str) -> None:
    ran = await api.kubectl("apply", "-f", "-", stdin=text)
    assert ran.code == 1
    assert re.search(message, ran.err), ran.err


async def test_a_v1alpha1_traffic_target_keeps_all_fields_in_storage(api: EmbeddedApi) -> None:
    """The stored version has the port in another field. A v1alpha1 client still reads it from the old field."""
    assert "created" in await api.ok("apply", "-f", "-", stdin=FLAT)
    assert "unchanged" in await api.ok("apply", "-f", "-", stdin=FLAT)
    assert re.search(r"old +default/service-a:8080 +default/prometheus +the-routes/metrics ", await api.ok("get", "tt"))
    path = "jsonpath={.specs[0].name} {.destination.port} {.spec}"
    versioned = "traffictargets.v1alpha1.access.smi-spec.io"
    assert await api.ok("get", versioned, "old", "-o", path) == "the-routes 8080 "
    assert "configured" in await api.ok("apply", "-f", "-", stdin=FLAT.replace("8080", "9090"))
    assert await api.ok("get", "tt", "old", "-o", "jsonpath={.spec.destination.port}") == "9090"
    assert "deleted" in await api.ok("delete", "-f", "-", stdin=FLAT)


async def test_a_tcp_route_without_matches_selects_every_port(api: EmbeddedApi) -> None:
    assert "created" in await api.ok("apply", "-f", "-", stdin=PORTLESS)
    assert "unchanged" in await api.ok("apply", "-f", "-", stdin=PORTLESS)
    assert re.search(r"every +\d+s", await api.ok("get", "tr"))


async def test_the_early_form_of_tls_config_is_accepted(api: EmbeddedApi) -> None:
    """R72. `kubectl create` accepts the early form. `kubectl apply` requires metadata.name in both apiVersions."""
    assert "my-tls-config created" in await api.ok("create", "-f", "-", stdin=SEED_004)
    assert "AlreadyExists" in (await api.kubectl("create", "-f", "-", stdin=SEED_004)).err
    assert re.search(r"my-tls-config +role=frontend,stage=production +foo,bar ", await api.ok("get", "tlsconfigs"))
    assert await api.ok("get", "baretlsconfigs", "-o", "name") == "tlsconfig/my-tls-config\n"
    applied = SEED_004.replace("name: my-tls-config", "metadata: {name: other}")
    assert "created" in await api.ok("apply", "-f", "-", stdin=applied)
    assert "configured" in await api.ok("apply", "-f", "-", stdin=applied.replace("- bar", "- baz"))
    assert await api.ok("get", "tlsconfigs", "other", "-o", "jsonpath={.spec.subjectNames}") == '["foo","baz"]'


async def test_an_object_with_two_different_names_is_rejected(client: AsgiClient) -> None:
    obj: dict[str, Any] = {**parse(SEED_004)[0][0].object, "name": "other"}
    answer = await client.call("POST", "/api/v1beta1/namespaces/default/tlsconfigs", obj)
    assert answer.code == 422
    assert "write the name in metadata.name only" in answer.body["message"]


async def test_the_api_stores_the_same_spec_as_a_manifest_file_in_the_early_form(client: AsgiClient) -> None:
    answer = await client.call("POST", "/api/v1beta1/namespaces/default/tlsconfigs", _early_form(SEED_004))
    assert answer.code == 201
    stored = await client.call("GET", "/apis/headgate.dev/v1beta1/namespaces/default/tlsconfigs/my-tls-config")
    assert stored.body["spec"] == to_hub(parse(SEED_004)[0][0].object)["spec"]
    assert "name" not in stored.body


def _early_form(text: str) -> Mapping[str, Any]:
    """Return a manifest's object in the early form, with its name at the top level. The parser moves the name."""
    obj = json.loads(json.dumps(parse(text)[0][0].object))
    return {**{field: value for field, value in obj.items() if field != "metadata"}, "name": obj["metadata"]["name"]}
