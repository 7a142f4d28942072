"""A fake mesh for tests of the inspect API, with three proxies, one finding and one problem."""

from typing import Any

from headgate.errors import NotFound
from headgate.plane.inspector import ConfigQuery
from headgate.resources.call_records import CallRecord, CallRecordList
from headgate.resources.inspect import (
    FindingList,
    ObjectName,
    PodSidecar,
    Proxy,
    ProxyConfig,
    ProxyStatus,
    PublishedFinding,
    ResourceType,
    Severity,
    SidecarDecision,
)
from headgate.resources.mesh_status import (
    CertificateCounts,
    FindingCounts,
    MeshProblem,
    MeshState,
    MeshStatus,
    ProxyCounts,
    Revisions,
)
from headgate.resources.meta import Key
from headgate.resources.request_spec import RequestSpec, check
from headgate.resources.workload_sidecars import PodRestart, WorkloadSidecars


def proxy(namespace: str, name: str, *, held: int = 3) -> Proxy:
    types = (
        ResourceType(type="clusters", resources=3, held=held, version="a", held_version="a" if held == 3 else "b"),
    )
    return Proxy(
        metadata=ObjectName(namespace=namespace, name=name),
        node=f"sidecar/{namespace}/{name}",
        status=ProxyStatus(state="InSync" if held == 3 else "Lagging", types=types),
    )


class FakeMesh:
    """A fake of `plane.inspector.Inspector`, without a state for plans and without traffic graphs.

    Tests change `rows`, the proxies, and `failure`, with which lists of them fail. `reads` counts these lists.
    """

    live_state: Any = None
    graphs: Any = None
    series: Any = None

    def __init__(self) -> None:
        self.rows = [proxy("a", "one"), proxy("b", "one"), proxy("b", "two", held=2)]
        self.failure: Exception | None = None
        self.reads = 0

    def proxies(self) -> Any:
        self.reads += 1
        if self.failure:
            raise self.failure
        return self.rows

    def proxy(self, name: ObjectName) -> Any:
        return next((item for item in self.rows if item.metadata == name), None)

    async def config(self, asked: ConfigQuery) -> Any:
        named = [item for item in self.rows if item.metadata == asked.proxy]
        return ProxyConfig(metadata=named[0].metadata, node=named[0].node, resources=()) if named else None

    async def pod_sidecar(self, name: ObjectName) -> PodSidecar:
        if name.name != "one":
            raise NotFound(name.name)
        decision = SidecarDecision(injected=True, setting="PodLabel", message="")
        return PodSidecar(metadata=name, sidecar="explicit", decision=decision)

    async def workload_sidecars(self, namespace: str = "") -> tuple[WorkloadSidecars, ...]:
        pods = (
            PodRestart(name="one", sidecar="explicit", injected=True),
            PodRestart(name="two", sidecar="", injected=True, messages=("has no sidecar",)),
        )
        web = WorkloadSidecars(
            metadata=ObjectName(namespace="b", name="deployment.web"),
            object=Key("apps", "Deployment", "b", "web"),
            pods=pods,
        )
        return (web,) if namespace in ("", "b") else ()

    async def explain(self, sent: RequestSpec, revision: int = 0) -> Any:
        check(sent)
        raise NotFound(f"{sent.namespace} {sent.method} {sent.url} {sent.caller} {sent.via} {sent.headers} {revision}")

    def calls(self) -> CallRecordList:
        one = CallRecord(
            metadata=ObjectName(namespace="b", name="web"),
            caller="b/client",
            port=80,
            protocol="HTTP",
            calls=5,
            first_call_time="2026-01-01T00:00:00Z",
            last_call_time="2026-01-01T00:00:00Z",
            would_refuse=2,
        )
        return CallRecordList(recording_start_time="2026-01-01T00:00:00Z", items=(one,))

    async def findings(self) -> FindingList:
        about = Key("", "Service", "b", "web")
        one = PublishedFinding(
            metadata=ObjectName(namespace="b", name="web.1"),
            object=about,
            severity=Severity.ERROR,
            reason="Invalid",
            field="spec",
            message="is wrong",
        )
        return FindingList(objects=3, items=(one,))

    async def status(self) -> MeshStatus:
        state = MeshState(
            healthy=False,
            problems=(MeshProblem(reason="BuildFailed", message="one"),),
            start_time="2026-01-01T00:00:00Z",
            version="1",
            revisions=Revisions(stored=3, compiled=2),
            proxies=ProxyCounts(total=3, in_sync=2, lagging=1),
            certificates=CertificateCounts(total=3),
            findings=FindingCounts(errors=1),
        )
        return MeshStatus(metadata=ObjectName(name="mesh"), status=state)
