"""The real kubectl with kinds that headgate stores without effect, and with CustomResourceDefinitions."""

import asyncio
import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from tests.embedded_api import TOKEN, EmbeddedApi, KubectlPort
from tests.make.definitions import COLUMNS, cron_tab, definition, version
from tests.make.objects import manifest

from headgate.admission.chain import admission, object_check
from headgate.admission.injection import explicit_sidecars
from headgate.resources.meta import Key
from headgate.settings import DEFAULTS
from headgate.standalone.apiserver.app import create_app
from headgate.standalone.store.memory import MemoryStore

APPLICATION = """
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  ingressClassName: nginx
  rules: [{host: web.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 5
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 70}}}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec: {podSelector: {}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: db}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: report}
spec:
  schedule: "0 3 * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: report, image: report}]}}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: default}]
"""
READ = {  # commands after the application is applied, each with a regular expression for its output
    "get ing web": r"web +nginx +web.example.com +80 ",
    "get hpa web": r"web +Deployment/web +cpu: <unknown>/70% +1 +5 +0 ",
    "get pdb,netpol -o name": r"poddisruptionbudget.policy/web\nnetworkpolicy.networking.k8s.io/web\n",
    "describe ing web": r"web:80",
    "describe hpa web": r"Max replicas: +5",
    "describe sts db": r"Replicas: +1 desired",
    "describe cj report": r"Concurrency Policy: +Allow",
    "describe pvc data": r"VolumeMode: +Filesystem",
    "describe netpol web": r"Policy Types: Ingress",
    "describe rolebinding reader": r"Name: +reader",
    "explain pdb.spec.minAvailable": r"FIELD: minAvailable",
    "explain ing.spec.rules --recursive": r"pathType",
    "api-resources --api-group=rbac.authorization.k8s.io -o name": r"rolebindings",
    "scale sts db --replicas=3": r"scaled",
    "get sts db": r"db +0/3 ",
}


@pytest.fixture
async def api(embedded_port: KubectlPort, tmp_path: Path) -> AsyncIterator[EmbeddedApi]:
    """Serve an empty store with the admission of one machine.

    kubectl begins with a copy of the cached kinds of all tests, and caches the kinds that the test defines for it only.
    """
    store = MemoryStore(check=object_check(DEFAULTS), admit=admission(explicit_sidecars("none"), {}))
    async with embedded_port.serving(store, create_app(store, token=TOKEN)) as running:
        await running.ok("api-resources", "--cached")  # it reads the kinds if no test before has
        yield running._replace(cache=await asyncio.to_thread(shutil.copytree, running.cache, tmp_path / "cache"))


async def served(api: EmbeddedApi, command: str) -> str:
    return await api.ok(*command.split(" "))


async def test_a_plain_application_is_stored_listed_and_described(api: EmbeddedApi) -> None:
    applied = await api.kubectl("apply", "-f", "-", stdin=APPLICATION)
    assert applied.code == 0, applied.err
    assert "Warning: ingresses are stored without effect" in applied.err
    assert "Warning: NetworkPolicies have no effect on one machine" in applied.err
    for command, expected in READ.items():
        assert re.search(expected, await served(api, command)), command
    again = await api.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=APPLICATION)
    assert again.out.count("serverside-applied") == 8
    assert "Warning" not in again.err
    await api.ok("delete", "-f", "-", stdin=APPLICATION)
    assert (await api.store.list("batch", "CronJob")).items == []


MADE = (  # kubectl sends what these commands make in protobuf
    "create role made --verb=get --resource=pods",
    "create rolebinding made --role=made --user=ann",
    "create clusterrole made --verb=get --resource=pods",
    "create clusterrolebinding made --clusterrole=made --user=ann",
    "create ingress made --rule=a.example/*=web:80",
    "create quota made --hard=pods=4",
    "create priorityclass made --value=1000",
    "create job made --image=example -- sleep 9",
)
MADE_NOW = (  # older kubectls make beta versions of these
    "create pdb made --selector=app=web --min-available=50%",
    "create cronjob made --image=example --schedule=@hourly -- sleep 9",
    "autoscale deployment made --min=1 --max=3 --cpu=70%",
)


async def test_objects_that_kubectl_makes_are_stored(api_of_each_kubectl: EmbeddedApi) -> None:
    api = api_of_each_kubectl
    is_current = Path(api.program).parent == Path(sys.executable).parent
    await served(api, "create deployment made --image=example")
    for command in (*MADE, *(MADE_NOW if is_current else ())):
        await served(api, command)
    job = await api.store.get(Key("batch", "Job", "default", "made"))
    assert job["spec"]["template"]["spec"]["containers"][0]["command"] == ["sleep", "9"]
    quota = await api.store.get(Key("", "ResourceQuota", "default", "made"))
    assert quota["spec"] == {"hard": {"pods": "4"}}
    if is_current:
        budget = await api.store.get(Key("policy", "PodDisruptionBudget", "default", "made"))
        assert budget["spec"]["minAvailable"] == "50%"
        scaler = await api.store.get(Key("autoscaling", "HorizontalPodAutoscaler", "default", "made"))
        assert scaler["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 70


async def test_an_invalid_object_of_a_further_kind_is_rejected(api: EmbeddedApi) -> None:
    broken = APPLICATION.replace("maxReplicas: 5", "maxReplicas: many")
    ran = await api.kubectl("apply", "--validate=false", "-f", "-", stdin=broken)
    assert "spec.maxReplicas: must be a whole number" in ran.err
    assert (await api.store.list("autoscaling", "HorizontalPodAutoscaler")).items == []


async def test_a_defined_kind_is_used_like_a_built_in_one(api: EmbeddedApi) -> None:
    await api.ok("apply", "-f", "-", stdin=manifest(definition()))
    await served(api, "wait --for=condition=Established crd/crontabs.stable.example.com --timeout=10s")
    assert "crontabs.stable.example.com" in await served(api, "get crd")
    await api.ok("apply", "-f", "-", stdin=manifest(cron_tab()))
    await api.ok("apply", "--server-side", "-f", "-", stdin=manifest(cron_tab("second", replicas=2)))
    assert re.search(r"NAME +SPEC +READY +AGE\nnightly +\* \* \* \* \* ", await served(api, "get ct"))
    assert "-required-" in await served(api, "explain crontab.spec")
    assert re.search(r"crontabs +ct ", await served(api, "api-resources --api-group=stable.example.com"))
    await served(api, "scale ct/second --replicas=3")
    stored = await api.store.get(Key("stable.example.com", "CronTab", "default", "second"))
    assert stored["spec"]["replicas"] == 3
    status = '--patch={"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    await api.ok("patch", "ct", "second", "--type=merge", "--subresource=status", status)
    await served(api, "wait --for=condition=Ready ct/second --timeout=10s")
    assert "second" in await served(api, "get all")


async def test_an_object_that_breaks_the_schema_of_its_definition_is_rejected(api: EmbeddedApi) -> None:
    await api.ok("apply", "-f", "-", stdin=manifest(definition()))
    unknown = await api.kubectl("create", "-f", "-", stdin=manifest(cron_tab(foo=1)))
    assert 'unknown field "spec.foo"' in unknown.err
    broken = await api.kubectl("create", "--validate=false", "-f", "-", stdin=manifest(cron_tab(replicas=99)))
    assert "spec.replicas: must be from 1 to 10, not 99" in broken.err


async def test_a_deleted_definition_is_no_longer_served(api: EmbeddedApi) -> None:
    await api.ok("apply", "-f", "-", stdin=manifest(definition()))
    await api.ok("apply", "-f", "-", stdin=manifest(cron_tab()))
    await served(api, "delete crd crontabs.stable.example.com --timeout=10s")
    ran = await api.kubectl("get", "crontabs.stable.example.com")
    assert ran.code == 1
    assert await api.store.list("stable.example.com", "CronTab") == ([], str(api.store.revision))


async def test_a_kind_without_a_definition_is_unknown_to_kubectl(api: EmbeddedApi) -> None:
    ran = await api.kubectl("apply", "-f", "-", stdin=manifest(cron_tab()))
    assert 'no matches for kind "CronTab" in version "stable.example.com/v1"' in ran.err


async def test_a_changed_definition_changes_columns_and_versions(api: EmbeddedApi) -> None:
    await api.ok("apply", "-f", "-", stdin=manifest(definition()))
    await api.ok("apply", "-f", "-", stdin=manifest(cron_tab()))
    columns = [*COLUMNS, {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}]
    newer = version("v2", additionalPrinterColumns=columns)
    await api.ok("apply", "-f", "-", stdin=manifest(definition(version(storage=False), newer)))
    assert "REPLICAS" in await served(api, "get crontabs.stable.example.com")
    shown = yaml.safe_load(await served(api, "get crontabs.v1.stable.example.com nightly -o yaml"))
    assert shown["apiVersion"] == "stable.example.com/v1"
