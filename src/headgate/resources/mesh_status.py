"""The type of the MeshStatus in the inspect API: the summary of a mesh."""

from collections.abc import Iterator
from typing import Literal

from headgate.resources.inspect import API_VERSION, Answer, AnswerList, ObjectName, Time
from headgate.resources.meta import Key
from headgate.settings import DEFAULTS


class Revisions(Answer, frozen=True, kw_only=True):
    """Revisions of the objects since headgate started: `stored` is the newest one, `compiled` the newest compiled one.

    `current`: the newest revision is compiled. `failures` counts builds that failed because of a bug.
    """

    stored: int
    compiled: int
    current: bool = True
    failures: int = 0


class ProxyCounts(Answer, frozen=True, kw_only=True):
    """Numbers of proxies by state. `restarted` and `adopted` count proxies whose process headgate runs."""

    total: int
    in_sync: int = 0
    lagging: int = 0
    refused: int = 0
    disconnected: int = 0
    restarted: int = 0
    adopted: int = 0


class CertificateCounts(Answer, frozen=True, kw_only=True):
    """The certificates of all proxies: when the oldest was issued, and when the first expires.

    `faults` counts certificates that are missing or can't be renewed.
    """

    total: int
    oldest_issue_time: Time = None
    first_expiry_time: Time = None
    faults: int = 0


class FindingCounts(Answer, frozen=True, kw_only=True):
    """Numbers of findings by severity."""

    errors: int = 0
    warnings: int = 0
    notes: int = 0


class PodCounts(Answer, frozen=True, kw_only=True):
    """Numbers of pods that headgate runs as processes. `adopted`: an earlier headgate process started them."""

    total: int = 0
    adopted: int = 0


class UnreadyWorkload(Answer, frozen=True, kw_only=True):
    """A workload, or a pod without a controller, whose pods are not all ready, and why."""

    object: Key
    ready: int
    wanted: int
    message: str

    def text(self) -> str:
        """Return the sentence for users, without the name of the object."""
        return f"{self.ready} of {self.wanted} pods ready: {self.message}" if self.wanted else self.message


class WorkloadCounts(Answer, frozen=True, kw_only=True):
    """How many pods are ready and how many there should be, with the workloads that need attention.

    On one machine these are all pods, on a cluster the pods with a sidecar and the other pods of their workloads.
    """

    ready: int = 0
    wanted: int = 0
    unready: tuple[UnreadyWorkload, ...] = ()


class StoreState(Answer, frozen=True, kw_only=True):
    """Whether headgate's own store can persist a write, or why not, and since when no write has succeeded.

    `damaged` has the files of objects that were damaged in the store, and without which headgate runs.
    """

    writable: bool
    message: str = ""
    failing_since_time: Time = None
    damaged: tuple[str, ...] = ()

    def write_problems(self) -> Iterator[str]:
        """Yield a sentence if the store can't be written."""
        if not self.writable:
            yield f"{self.message}; no write has succeeded since {self.failing_since_time}"

    def damages(self) -> Iterator[str]:
        """Yield a sentence for each damaged object."""
        for path in self.damaged:
            yield f"an object was damaged in the store: write it again, with the help of {path}, then delete that file"


class SettingsInForce(Answer, frozen=True, kw_only=True):
    """The settings with which the mesh is compiled, as in `Settings`."""

    domain: str = DEFAULTS.domain
    trust_domain: str = DEFAULTS.trust_domain
    mtls: Literal["off", "permissive", "strict"] = DEFAULTS.mtls
    access: Literal["selected", "deny"] = DEFAULTS.access
    outbound: Literal["allow", "refuse"] = DEFAULTS.outbound


class MeshProblem(Answer, frozen=True, kw_only=True):
    """A problem of the mesh, or of the `object` if there is one."""

    reason: str
    message: str
    object: Key | None = None


MOST_FAILING = 100
"""The number of rows about failing traffic in a MeshStatus: watchers get it with each change."""


class FailingTraffic(Answer, frozen=True, kw_only=True):
    """Requests and connections of a client to a Service port of which some fail or are denied, in the last seconds.

    `caller` is the workload of the client; null for the gateway and all clients outside of the mesh. `client` has it in words.
    `service` is `namespace/name`, empty if unknown; `port` is 0 if unknown. Of `total` requests and connections, `failed` got a response that
    counts as a failure, or none, and `denied` were denied by access rules. `message` is the most frequent cause, and
    `command` explains it. `recovered_seconds` is above 0 if of `recovered_total` in so many last seconds none failed or was
    denied, and they are too many for that to be chance.
    """

    caller: Key | None
    client: str
    service: str
    port: int
    total: int
    failed: int
    denied: int
    message: str
    command: str
    recovered_seconds: int = 0
    recovered_total: int = 0


class MeshState(Answer, frozen=True, kw_only=True):
    """The state of the mesh. `healthy` means that there are no problems. `version` is that of headgate.

    `missing_kinds` has kinds without a CustomResourceDefinition in the cluster, as `PLURAL.GROUP`. `workloads` is missing
    while the pods of a cluster can't be read. A cluster's API server has the objects: there is no `store` then.
    `localhost_port` is where one machine serves names below `.localhost`; 0 on a cluster. `failing` has the traffic of the last 30 s
    that fails, which does not make the mesh unhealthy; it is null while no counts can be read. `failing_left_out` is the number of
    rows beyond `MOST_FAILING`, which it lacks.
    """

    healthy: bool
    problems: tuple[MeshProblem, ...]
    start_time: Time
    version: str
    revisions: Revisions
    proxies: ProxyCounts
    certificates: CertificateCounts
    findings: FindingCounts
    pods: PodCounts | None = None
    workloads: WorkloadCounts | None = None
    store: StoreState | None = None
    missing_kinds: tuple[str, ...] = ()
    localhost_port: int = 0
    failing: tuple[FailingTraffic, ...] | None = None
    failing_left_out: int = 0
    settings: SettingsInForce = SettingsInForce()


class MeshStatus(Answer, frozen=True, kw_only=True):
    """The summary of the mesh; there is one such object."""

    metadata: ObjectName
    status: MeshState
    api_version: str = API_VERSION
    kind: str = "MeshStatus"


class MeshStatusList(AnswerList, frozen=True, kw_only=True):
    """The list with the only MeshStatus."""

    items: tuple[MeshStatus, ...]
    kind: str = "MeshStatusList"


MESH = "mesh"
"""The name of the only MeshStatus object."""
