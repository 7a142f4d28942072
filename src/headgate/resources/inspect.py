"""What the inspect API answers, as JSON: `inspect.headgate.dev/v1` (D29). Read-only, and nothing of it is stored.

The API writes these shapes and its clients read them. Times are RFC 3339; an empty one means never.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import field

from headgate.resources.meta import Input

GROUP, VERSION = "inspect.headgate.dev", "v1"
API_VERSION = f"{GROUP}/{VERSION}"

ProxyState = Literal["InSync", "Lagging", "Refused", "Disconnected"]
"""`Refused`: the proxy rejected a resource and goes on with the version that it had. `Lagging`: it is connected and has not
acknowledged all that it was sent. `Disconnected`: it has no stream."""


class Answer(Input, frozen=True, kw_only=True, omit_defaults=False):
    """A part of an answer: scripts find every field, also those without content."""


class ObjectName(Answer, frozen=True, kw_only=True):
    """`metadata` of an answer."""

    name: str = ""
    namespace: str = ""


class ResourceType(Answer, frozen=True, kw_only=True):
    """One type of Envoy's resources at one proxy: how many it subscribes to, and how many of them it acknowledged.

    A version is a digest of all names and contents. `held_version` equals `version` when the proxy holds everything. Only
    the answer about a single proxy has them.
    """

    type: str
    resources: int
    held: int
    version: str = ""
    held_version: str = ""
    acknowledged: str = ""


class Refusal(Answer, frozen=True, kw_only=True):
    """A resource that a proxy rejected, with Envoy's words. `current`: the proxy still lacks it.

    `object` is the user's object that the resource comes from.
    """

    type: str
    resource: str
    message: str
    object: str = ""
    time: str = ""
    current: bool = True


class ProxyProcess(Answer, frozen=True, kw_only=True):
    """The Envoy process, where headgate runs it: `pid` is 0 while there is none, `failure` says why the last one ended.

    `probe` is the path of its unix socket for `headgate try`.
    """

    pid: int = 0
    adopted: bool = False
    restarts: int = 0
    failure: str = ""
    probe: str = ""


class Certificate(Answer, frozen=True, kw_only=True):
    """The certificate that a proxy's configuration holds; `fault` says why there is none, or no new one."""

    identity: str = ""
    not_before: str = ""
    not_after: str = ""
    fault: str = ""


class ProxyStatus(Answer, frozen=True, kw_only=True):
    """What headgate sent to a proxy, and what the proxy answered. `message` explains any state but InSync.

    `waiting` is since when the oldest answer is due. `serves`: it was sent a configuration, by this headgate or an earlier
    one, and goes by that while it is away.
    """

    state: ProxyState
    message: str = ""
    connected: str = ""
    serves: bool = False
    last_acknowledged: str = ""
    waiting: str = ""
    types: tuple[ResourceType, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    last_refusal: Refusal | None = None
    process: ProxyProcess | None = None
    certificate: Certificate | None = None


class Proxy(Answer, frozen=True, kw_only=True):
    """One proxy. A sidecar has the namespace and the name of its pod, a gateway is in `headgate-system`.

    `service_account` and `deployment` are the pod's.
    """

    metadata: ObjectName
    node: str
    status: ProxyStatus
    service_account: str = ""
    deployment: str = ""
    api_version: str = API_VERSION
    kind: str = "Proxy"


ResourceState = Literal["Held", "Pending", "Refused"]
"""`Held`: the proxy acknowledged the current version. `Pending`: it has not answered yet, or was not sent it yet."""


class ConfigResource(Answer, frozen=True, kw_only=True):
    """One of Envoy's resources. `object` is the user's object that it comes from, empty for what each proxy has.

    `version` is the current one, as in Envoy's own configuration dump; `held_version` the one that the proxy acknowledged
    last. `content` is the current message, private keys redacted, when it was asked for.
    """

    type: str
    name: str
    object: str
    state: ResourceState
    version: str
    held_version: str = ""
    message: str = ""
    content: Mapping[str, Any] | None = None


class ProxyConfig(Answer, frozen=True, kw_only=True):
    """What one proxy is to hold, and what it acknowledged."""

    metadata: ObjectName
    node: str
    resources: tuple[ConfigResource, ...]
    api_version: str = API_VERSION
    kind: str = "ProxyConfig"


TYPES = ("clusters", "endpoints", "listeners", "chains", "routes", "scopes", "secrets", "runtime")
"""The types of Envoy's resources, by the names that users know."""


class ObjectRef(Answer, frozen=True, kw_only=True):
    """The object that a finding is about."""

    group: str
    kind: str
    namespace: str
    name: str


class Finding(Answer, frozen=True, kw_only=True):
    """Something to say about an object. `field` is the path as the user wrote it, `severity` error, warning or note.

    Findings about objects without a namespace are in `default`, as Events about them are.
    """

    metadata: ObjectName
    object: ObjectRef
    severity: str
    reason: str
    field: str
    message: str
    api_version: str = API_VERSION
    kind: str = "Finding"


class FindingList(Answer, frozen=True, kw_only=True):
    """All findings, and of how many objects."""

    objects: int
    items: tuple[Finding, ...]
    api_version: str = API_VERSION
    kind: str = "FindingList"


class Revisions(Answer, frozen=True, kw_only=True):
    """Which snapshots of the objects were taken and compiled: `stored` is the number of the newest, since headgate started.

    `current`: the newest one is compiled. `failures` counts builds that a bug stopped.
    """

    stored: int
    compiled: int
    current: bool = True
    failures: int = 0


class ProxyCounts(Answer, frozen=True, kw_only=True):
    """Proxies by their state; of those, `restarted` and `adopted` are where headgate runs the process."""

    total: int
    in_sync: int = 0
    lagging: int = 0
    refused: int = 0
    disconnected: int = 0
    restarted: int = 0
    adopted: int = 0


class CertificateCounts(Answer, frozen=True, kw_only=True):
    """The proxies' certificates: when the oldest was issued, and when the first expires. `faults`: without a new one."""

    total: int
    oldest: str = ""
    first_expiry: str = ""
    faults: int = 0


class FindingCounts(Answer, frozen=True, kw_only=True):
    """Findings by severity."""

    errors: int = 0
    warnings: int = 0
    notes: int = 0


class PodCounts(Answer, frozen=True, kw_only=True):
    """Pods that headgate runs itself. `adopted`: a process of an earlier headgate goes on in it."""

    total: int = 0
    adopted: int = 0


class MeshState(Answer, frozen=True, kw_only=True):
    """How the mesh is. `problems` says in words what is wrong; `healthy` means that there is none."""

    healthy: bool
    problems: tuple[str, ...]
    started: str
    headgate: str
    revisions: Revisions
    proxies: ProxyCounts
    certificates: CertificateCounts
    findings: FindingCounts
    pods: PodCounts | None = None


class MeshStatus(Answer, frozen=True, kw_only=True):
    """The one object that sums up the mesh."""

    metadata: ObjectName
    status: MeshState
    api_version: str = API_VERSION
    kind: str = "MeshStatus"


MESH = "mesh"
"""The name of the one MeshStatus."""


class TapRequest(Answer, frozen=True, kw_only=True):
    """A request as the proxy received it. Values of headers and of the path's query are `[redacted]` unless asked for."""

    method: str
    authority: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)


class TapResponse(Answer, frozen=True, kw_only=True):
    """What came back: `status` is 0 without a response, `flags` and `details` are Envoy's words for it."""

    status: int
    flags: tuple[str, ...] = ()
    details: str = ""
    grpc_status: str = ""


class TapPeer(Answer, frozen=True, kw_only=True):
    """An end of a request: a pod, a Service and its port, or whatever is known of a caller from outside the mesh."""

    pod: str = ""
    service: str = ""
    port: int = 0
    identity: str = ""
    address: str = ""


class TapRoute(Answer, frozen=True, kw_only=True):
    """The route that the client's proxy chose: the object that it comes from, and which of its routes."""

    object: str
    name: str = ""


class TapAccess(Answer, frozen=True, kw_only=True):
    """What the server's proxy decided, and the rule that allowed the request; `object` is empty for an open workload."""

    allowed: bool
    object: str = ""
    rule: str = ""


class TapEvent(Answer, frozen=True, kw_only=True):
    """A finished request, as one proxy saw it. `side` says whether that proxy sent it for a client or took it for a server.

    The client's side knows the route, the server's side the access rule. `latency_microseconds` is None without a whole
    response. `secured`: it went by mutual TLS between proxies.
    """

    time: str
    proxy: ObjectName
    side: Literal["client", "server"]
    request: TapRequest
    response: TapResponse
    source: TapPeer
    destination: TapPeer
    latency_microseconds: int | None = None
    secured: bool = False
    route: TapRoute | None = None
    access: TapAccess | None = None
    api_version: str = API_VERSION
    kind: str = "TapEvent"


class TapNotice(Answer, frozen=True, kw_only=True):
    """What a stream of TapEvents leaves out: `dropped` events since the last notice, for a `reason`."""

    dropped: int
    reason: str
    api_version: str = API_VERSION
    kind: str = "TapNotice"
