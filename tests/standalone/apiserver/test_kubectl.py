"""Commands of the real kubectl against the embedded API.

The older kubectl, if installed, runs those whose requests differ between versions: it discovers, validates and converts
objects in its own way. What the API answers is tested with the current one.
"""

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from tests.embedded_api import EmbeddedApi, KubectlPort, empty_api
from tests.make.objects import config_map, obj, owner_reference

from headgate.errors import NotFound
from headgate.resources.registry import TRAFFIC_SPLIT

WEBSITE = """
apiVersion: v1
kind: Service
metadata: {name: website}
spec:
  selector: {app: website}
  ports: [{name: http, port: 8080}]
---
apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata: {name: website, labels: {team: web}}
spec:
  service: website
  backends:
  - {service: website-v1, weight: 90}
  - {service: website-v2, weight: 10}
"""
BARE = """
apiVersion: v1beta1
kind: TrafficSplit
metadata: {name: old}
spec:
  service: website
  backends: [{service: website-v1, weight: 500m}, {service: website-v2, weight: "1"}]
"""
SLICE = """
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: website-1, labels: {kubernetes.io/service-name: website}}
addressType: IPv4
ports: [{name: http, port: 8081, protocol: TCP}]
endpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.2]}]
"""
GRANT = """
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: from-web}
spec:
  from: [{group: split.smi-spec.io, kind: TrafficSplit, namespace: web}]
  to: [{group: "", kind: Service, name: website}]
"""

READ = [  # commands to run after WEBSITE is applied, each with a regular expression for its output
    ("get ts", r"NAME +SERVICE +BACKENDS +ACCEPTED +PROGRAMMED +AGE\nwebsite +website +website-v1:90,website-v2:10 "),
    ("get ts -o wide", r" PROXIES +ACKNOWLEDGED\nwebsite "),
    ("get trafficsplit website -o name", r"^trafficsplit.split.smi-spec.io/website\n$"),
    ("get svc", r"NAME +TYPE +CLUSTER-IP +EXTERNAL-IP +PORT\(S\) +AGE\nwebsite +ClusterIP .* 8080/TCP +\d+s"),
    ("get ns", r"default +Active +\d+s\n"),
    ("get ts -A", r"^NAMESPACE .*\ndefault +website "),
    ("get ts -l team=web -o name", "website"),
    ("get ts -l team!=web -o name", "^$"),
    ("get ts -l team --show-labels", "team=web"),
    ("get ts --field-selector metadata.name=website -o name", "website"),
    ("get ts --field-selector metadata.name!=website -o name", "^$"),
    ("get svc,ts -o name", "service/website\ntrafficsplit.split.smi-spec.io/website"),
    ("get ts website -o jsonpath={.spec.backends[*].weight}", "^90 10$"),
    ("get ts -o custom-columns=N:.metadata.name,S:.spec.service", r"N +S\nwebsite +website\n"),
    ("get ts website -o yaml", r"(?s)apiVersion: split.smi-spec.io/v1alpha4.*weight: 90"),
    ("get trafficsplits.v1alpha1.split.smi-spec.io website -o yaml", "apiVersion: split.smi-spec.io/v1alpha1"),
    ("get --raw /api/v1/namespaces/default/services", '"kind":"ServiceList"'),
    ("describe ts website", r"(?s)API Version: +split.smi-spec.io/v1alpha4.*Weight: +90.*Events: +<none>"),
    ("describe svc website", r"(?s)Name: +website.*Port: +http +8080/"),
    ("api-resources", r"trafficsplits +ts +split.smi-spec.io/v1alpha4 +true +TrafficSplit"),
    ("api-versions", "(?s)apps/v1\n.*split.smi-spec.io/v1alpha1\n"),
    ("explain trafficsplit.spec.backends.weight", "relative share of the root's traffic"),
    ("explain service.spec.ports", "targetPort"),
    ("explain deployment.spec.template.spec.containers", "readinessProbe"),
    ("explain ts.spec --api-version=split.smi-spec.io/v1alpha3", "matches"),
    ("version", "Server Version"),
    ("cluster-info", "is running at .*https://127.0.0.1"),
    ("auth can-i create trafficsplits", "yes"),
    ("auth can-i --list", r"\*\.\*"),
]

WRITES = [  # consecutive commands, each with a regular expression for its output and the weights of the split afterwards
    ("patch ts website --type=merge -p {WEIGHTS:50,50}", "patched", "50 50"),
    (
        'patch ts website --type=json -p [{"op":"replace","path":"/spec/backends/0/weight","value":7}]',
        "patched",
        "7 50",
    ),
    ("label ts website a=b", "labeled", "7 50"),
    ("annotate ts website a=b", "annotated", "7 50"),
    ("label ts -l a=b a-", "label", "7 50"),
    ("delete ts website --dry-run=server", "deleted", "7 50"),
    ("delete ts -l team=web", '"website" deleted', ""),
]


CREATE = [
    "create namespace made",
    "create configmap made --from-literal=a=b",
    "create secret generic made --from-literal=a=b",
    "create serviceaccount made",
    "create deployment made --image=example --replicas=2 --port=80",
    "create service clusterip made --tcp=80:8080",
    "create service externalname made-outside --external-name=example.com",
    "run made --image=example --restart=Never -- sleep 9",
]


@pytest.fixture
def api(api_of_each_kubectl: EmbeddedApi) -> EmbeddedApi:
    """An empty store for one test, which calls the current kubectl, and once more for the older one."""
    return api_of_each_kubectl


@pytest.fixture
async def current_api(embedded_port: KubectlPort) -> AsyncIterator[EmbeddedApi]:
    """Serve an empty store for one test, which calls the current kubectl."""
    async with empty_api(embedded_port) as served:
        yield served


def words(command: str) -> list[str]:
    weights = re.sub(
        r"{WEIGHTS:(\d+),(\d+)}",
        r'{"spec":{"backends":[{"service":"website-v1","weight":\1},{"service":"website-v2","weight":\2}]}}',
        command,
    )
    return weights.split(" ")


async def weights(api: EmbeddedApi, name: str = "website") -> str:
    """Return the stored weights of a split. This costs less than a call of kubectl."""
    try:
        split = await api.store.get(TRAFFIC_SPLIT.key("default", name))
    except NotFound:
        return ""
    return " ".join(str(backend["weight"]) for backend in split["spec"]["backends"])


async def store_website(api: EmbeddedApi) -> None:
    """Create the objects of WEBSITE without kubectl."""
    for written in yaml.safe_load_all(WEBSITE):
        await api.store.create(written)


@pytest.mark.parametrize("options", [("--as", "alice"), ("--as", "alice", "--as-group", "readers")])
async def test_impersonation_is_forbidden(current_api: EmbeddedApi, options: tuple[str, ...]) -> None:
    """Otherwise a check of another user's rights would return the rights of the only user."""
    ran = await current_api.kubectl("get", "pods", *options)
    assert ran.code == 1
    assert "omit --as" in ran.err


async def test_kubectl_reads_objects(api: EmbeddedApi) -> None:
    await store_website(api)
    for command, expected in READ:
        ran = await api.kubectl(*words(command))
        assert re.search(expected, re.sub(r"\x1b\[[\d;]*m", "", ran.out)), (command, ran)
        assert ran.code == 0, (command, ran)


async def test_kubectl_writes_objects(api: EmbeddedApi) -> None:
    await store_website(api)
    for command, expected, after in WRITES:
        ran = await api.kubectl(*words(command))
        assert re.search(expected, ran.out), (command, ran)
        assert await weights(api) == after, command


async def test_apply_prints_created_unchanged_and_configured(api: EmbeddedApi) -> None:
    first = await api.kubectl("apply", "-f", "-", stdin=WEBSITE)
    assert "trafficsplit.split.smi-spec.io/website created" in first.out
    assert "Warning: the Service does not exist yet" in first.err
    assert "trafficsplit.split.smi-spec.io/website unchanged" in await api.ok("apply", "-f", "-", stdin=WEBSITE)
    changed = WEBSITE.replace("weight: 90", "weight: 80")
    diff = await api.kubectl("diff", "-f", "-", stdin=changed)
    assert diff.code == 1
    assert "+    weight: 80" in diff.out
    assert await weights(api) == "90 10"
    assert "trafficsplit.split.smi-spec.io/website configured" in await api.ok("apply", "-f", "-", stdin=changed)
    assert await weights(api) == "80 10"
    assert "replaced" in await api.ok("replace", "-f", "-", stdin=WEBSITE)
    assert await weights(api) == "90 10"
    assert "serverside-applied" in await api.ok("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=changed)
    assert await weights(api) == "80 10"
    assert "deleted" in await api.ok("delete", "-f", "-", stdin=WEBSITE)
    assert await api.ok("get", "ts,svc", "-o", "name") == ""


async def test_the_early_api_version_without_a_group_works(api: EmbeddedApi) -> None:
    """R9. `kubectl apply` accepts quantities in this version; short names select the newest version."""
    assert "created" in await api.ok("apply", "-f", "-", stdin=BARE)
    assert "unchanged" in await api.ok("apply", "-f", "-", stdin=BARE)
    assert await weights(api, "old") == "1 2"
    assert await api.ok("get", "baretrafficsplits", "old", "-o", "jsonpath={.spec.backends[*].weight}") == "500m 1"
    assert await api.ok("get", "headgate", "-o", "name") == "trafficsplit.split.smi-spec.io/old\n"
    assert "configured" in await api.ok("apply", "-f", "-", stdin=BARE.replace("500m", "250m"))
    assert await weights(api, "old") == "1 4"
    assert "deleted" in await api.ok("delete", "-f", "-", stdin=BARE)


async def test_kubectl_edit_updates_an_object(api: EmbeddedApi) -> None:
    await store_website(api)
    edited = await api.ok("edit", "ts", "website", KUBE_EDITOR="sed -i 's/weight: 90/weight: 55/'")
    assert "edited" in edited
    assert await weights(api) == "55 10"


async def test_an_invalid_object_is_rejected_with_the_field(current_api: EmbeddedApi) -> None:
    """R6. One response has the path of each invalid field."""
    await store_website(current_api)
    wrong = WEBSITE.replace("weight: 90", "weight: -1").replace("weight: 10", 'weight: "10"')
    ran = await current_api.kubectl("apply", "--validate=false", "-f", "-", stdin=wrong)
    assert ran.code == 1
    assert "* spec.backends[0].weight: must be 0 or more, not -1" in ran.err
    assert "* spec.backends[1].weight: " in ran.err
    unknown = await current_api.kubectl(
        "apply", "-f", "-", stdin=WEBSITE.replace("backends:", "weights: []\n  backends:")
    )
    assert unknown.code == 1
    assert "weights" in unknown.err
    patch = await current_api.kubectl("patch", "ts", "website", "-p", "{}")
    assert "--type=merge" in patch.err
    assert "no-such" in (await current_api.kubectl("create", "cm", "x", "-n", "no-such")).err
    assert "NotFound" in (await current_api.kubectl("get", "ts", "none")).err
    assert (
        "not a known field selector"
        in (await current_api.kubectl("get", "ts", "--field-selector", "spec.service=x")).err
    )


async def test_kubectl_create_commands_create_objects(api: EmbeddedApi) -> None:
    for command in CREATE:
        assert "created" in await api.ok(*words(command)), command
    described = await api.ok("describe", "ns,cm,secret,sa,deploy,svc,po", "made")
    described += await api.ok("describe", "svc", "made-outside")
    assert len(re.findall("(?m)^Name: +made", described)) == len(CREATE), described


async def test_kubectl_creates_scales_and_shows_a_deployment(api: EmbeddedApi) -> None:
    await api.ok("create", "deployment", "web", "--image=example", "--replicas=2")
    assert re.search(r"web +0/2 +0 +0 +\d+s", await api.ok("get", "deploy"))
    assert "deployment.apps/web" in await api.ok("get", "all")
    assert "scaled" in await api.ok("scale", "deploy/web", "--replicas=0")
    assert "restarted" in await api.ok("rollout", "restart", "deploy/web")
    assert "updated" in await api.ok("set", "image", "deploy/web", "example=other:2")
    assert "exposed" in await api.ok("expose", "deployment", "web", "--port=80")
    spec = json.loads(await api.ok("get", "deploy", "web", "-o", "json"))["spec"]
    assert spec["replicas"] == 0
    assert spec["template"]["spec"]["containers"] == [{"name": "example", "image": "other:2", "resources": {}}] or (
        spec["template"]["spec"]["containers"] == [{"name": "example", "image": "other:2"}]
    )
    status = {"replicas": 0, "updatedReplicas": 0, "availableReplicas": 0, "observedGeneration": 9}
    await set_status(api, "Deployment", "web", status)
    assert "successfully rolled out" in await api.ok("rollout", "status", "deploy/web", "--timeout=60s")


async def set_status(api: EmbeddedApi, kind: str, name: str, status: dict[str, Any]) -> None:
    await api.store.update(obj(kind, name, status=status), subresource="status")


async def test_kubectl_wait_returns_on_a_condition_and_on_deletion(api: EmbeddedApi) -> None:
    await store_website(api)
    waiting = asyncio.create_task(api.kubectl("wait", "ts/website", "--for=condition=Programmed", "--timeout=60s"))
    condition = {"type": "Programmed", "status": "True", "reason": "Programmed", "message": "on 1 of 1 proxies"}
    status = {"conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    await set_status(api, "TrafficSplit", "website", status)
    assert "condition met" in (await waiting).out
    assert re.search(r"website +website +\S+ +True +\d+s", await api.ok("get", "ts"))
    gone = asyncio.create_task(api.kubectl("wait", "ts/website", "--for=delete", "--timeout=60s"))
    await api.ok("delete", "ts", "--all", "--wait=true")
    # `kubectl wait` reports NotFound if it starts after the deletion
    assert (await gone).code == 0 or "NotFound" in (await gone).err


async def test_kubectl_get_watch_shows_changes(api: EmbeddedApi) -> None:
    await store_website(api)
    command = api.command("get", "ts", "-w", "--output-watch-events")
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert re.match(rb"EVENT +NAME +SERVICE", await process.stdout.readline())
    assert re.match(rb"ADDED +website .*:90,", await process.stdout.readline())
    await api.ok(*words("patch ts website --type=merge -p {WEIGHTS:1,1}"))
    assert re.match(rb"MODIFIED +website .*:1,website-v2:1 ", await process.stdout.readline())
    await api.ok("delete", "ts", "website")
    assert re.match(rb"DELETED +website ", await process.stdout.readline())
    process.terminate()
    await process.wait()


async def test_kubectl_describe_shows_the_events_of_an_object(api: EmbeddedApi) -> None:
    """R39."""
    await store_website(api)
    split = await api.store.get(TRAFFIC_SPLIT.key("default", "website"))
    involved = {"kind": "TrafficSplit", "apiVersion": split["apiVersion"], "name": "website", "namespace": "default"}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "website.1", "namespace": "default"},
        "involvedObject": {**involved, "uid": split["metadata"]["uid"]},
        "type": "Warning",
        "reason": "PortMismatch",
        "message": "traffic will not be split for website-v1",
        "count": 2,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "headgate"},
    }
    await api.store.create(event)
    assert re.search("Warning +PortMismatch .* traffic will not be split", await api.ok("describe", "ts", "website"))
    assert re.search("Warning +PortMismatch +trafficsplit/website", await api.ok("get", "events"))
    selected = await api.ok("get", "ev", "--field-selector", "involvedObject.name=website,type=Warning", "-o", "name")
    assert selected == "event/website.1\n"


async def test_each_kind_has_its_kubectl_columns(current_api: EmbeddedApi) -> None:
    await current_api.ok("apply", "-f", "-", stdin=SLICE + "---" + GRANT)
    assert re.search(r"website-1 +IPv4 +8081 +10.0.0.1,10.0.0.2 ", await current_api.ok("get", "endpointslices"))
    assert re.search(r"from-web +web/TrafficSplit +Service/website ", await current_api.ok("get", "refgrant"))


async def test_kubectl_delete_deletes_dependents_unless_they_are_orphaned(current_api: EmbeddedApi) -> None:
    for cascade, left in (("background", ""), ("foreground", ""), ("orphan", "secret/owned\n")):
        owner = await current_api.store.create(config_map("owner"))
        await current_api.store.create(obj("Secret", "owned", metadata={"ownerReferences": [owner_reference(owner)]}))
        await current_api.ok("delete", "cm", "owner", f"--cascade={cascade}")
        assert await current_api.ok("get", "secret", "-o", "name") == left


async def test_kubectl_logs_reads_the_log_of_a_container(current_api: EmbeddedApi) -> None:
    await current_api.ok("run", "web", "--image=example", "--restart=Never")
    assert await current_api.ok("logs", "web") == "web line 0\nweb line 1\nweb line 2\n"
    assert await current_api.ok("logs", "-f", "web", "--tail=1") == "web line 2\n"
    assert "is not valid for pod web" in (await current_api.kubectl("logs", "web", "-c", "other")).err
    assert "timestamps" in (await current_api.kubectl("logs", "web", "--timestamps")).err


async def test_kubectl_creates_objects_with_generate_name_and_reads_lists_in_pages(current_api: EmbeddedApi) -> None:
    generated = "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: gen-}\n"
    names = [await current_api.ok("create", "-f", "-", "-o", "name", stdin=generated) for _ in range(3)]
    assert len(set(names)) == 3
    assert sorted((await current_api.ok("get", "cm", "--chunk-size=1", "-o", "name")).split()) == sorted(
        map(str.strip, names)
    )


async def test_a_wrong_token_is_reported_as_unauthorized(current_api: EmbeddedApi) -> None:
    config = json.loads(current_api.kubeconfig.read_text())
    assert current_api.kubeconfig.stat().st_mode & 0o777 == 0o600
    config["users"][0]["user"]["token"] = "wrong"
    other = current_api.kubeconfig.with_name("other")
    other.write_text(json.dumps(config))
    ran = await current_api._replace(kubeconfig=other).kubectl("get", "ns")
    assert ran.code == 1
    assert "logged in to the server" in ran.err or "Unauthorized" in ran.err
