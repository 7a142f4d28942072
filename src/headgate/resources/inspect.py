"""Types of the inspect API, `inspect.headgate.dev/v1beta1` (D29), for its server and its clients.

The API stores nothing: its objects are computed for each request. Fields whose values are sentences are called `message` or
`messages`; all other fields have values for programs. A reference to an object is a `Key`.
"""

import enum
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal, Protocol, TypeAlias, TypeVar, get_args

from msgspec import Meta, field

from headgate.resources.meta import Input, Key

GROUP, VERSION = "inspect.headgate.dev", "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"

Time: TypeAlias = Annotated[str | None, Meta(extra_json_schema={"format": "date-time"})]
"""A time as RFC 3339 in UTC; null means never. The names of its fields end in `Time`."""
ProxyState = Literal["InSync", "Lagging", "Refused", "Disconnected"]
"""`Refused`: the proxy rejected a resource (NACK) and keeps its previous version. `Lagging`: the proxy is connected, but has not
acknowledged all resources that headgate sent. `Disconnected`: the proxy has no stream."""
TypeName = Literal["clusters", "endpoints", "listeners", "chains", "routes", "scopes", "secrets", "runtime"]
"""An xDS resource type, by its name in commands and paths."""
TYPES: tuple[TypeName, ...] = get_args(TypeName)
SidecarMode: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": ["transparent", "explicit", ""]})]
"""The value of a pod's annotation `headgate.dev/sidecar-mode`; empty without a sidecar."""
InjectionSetting = Literal[
    "Option",
    "HeadgateRun",
    "PodLabel",
    "PodAnnotation",
    "TLSConfig",
    "NamespaceLabel",
    "NamespaceName",
    "Revision",
    "HostNetwork",
    "SystemNamespace",
]
"""The setting that decides whether a pod gets a sidecar; `Option` is `--sidecars`."""


class Severity(enum.StrEnum):
    """The severity of a finding about an object.

    With an error, the object or a part of it is not used. With a warning, its effect may not be the intended one. A
    note is only for information.
    """

    ERROR = "Error"
    WARNING = "Warning"
    NOTE = "Note"

    @property
    def word(self) -> str:
        """The severity in a line of text: `error`."""
        return self.value.lower()


class Answer(Input, frozen=True, kw_only=True, omit_defaults=False):
    """The base class of the API's types. Empty fields are written too, so that scripts find every field."""


class ObjectName(Answer, frozen=True, kw_only=True):
    """`metadata` of an object of the API."""

    name: str = ""
    namespace: str = ""


class AnswerList(Answer, frozen=True, kw_only=True):
    """The base class of lists. `metadata` is empty, because the objects have no resource versions."""

    metadata: Mapping[str, Any] = {}
    api_version: str = API_VERSION


class _Named(Protocol):
    @property
    def metadata(self) -> ObjectName: ...


N = TypeVar("N", bound=_Named)


def in_namespace(objects: Iterable[N], namespace: str) -> tuple[N, ...]:
    """Return the objects in a namespace; all if it is empty."""
    return tuple(obj for obj in objects if namespace in ("", obj.metadata.namespace))


class ExactShare(Answer, frozen=True, kw_only=True):
    """A share of the requests as a fraction, like `fraction` in the Gateway API."""

    numerator: int
    denominator: int

    @property
    def fraction(self) -> Fraction:
        """The share as a number."""
        return Fraction(self.numerator, self.denominator)

    def __str__(self) -> str:
        """Return the share as text: `1/3`."""
        return str(self.fraction)


def exact_share(share: Fraction) -> ExactShare:
    """Return a fraction in the format of the API."""
    return ExactShare(numerator=share.numerator, denominator=share.denominator)


class ResourceType(Answer, frozen=True, kw_only=True):
    """An xDS resource type of a proxy: the number of resources, and of those that the proxy acknowledged (`held`).

    A version is a digest of all names and contents. `held_version` equals `version` if the proxy has acknowledged all
    resources. Versions are filled in only when a single proxy is requested.
    """

    type: TypeName
    resources: int
    held: int
    version: str = ""
    held_version: str = ""
    last_acknowledged_time: Time = None


class Refusal(Answer, frozen=True, kw_only=True):
    """An xDS resource that a proxy rejected (NACK), with Envoy's message. `current`: the proxy still rejects it.

    `object` is the user's object from which the resource is made, null if it belongs to none.
    """

    type: TypeName
    resource: str
    message: str
    object: Key | None = None
    rejection_time: Time = None
    current: bool = True


class ProxyProcess(Answer, frozen=True, kw_only=True):
    """The Envoy process, if headgate runs it. `pid` is 0 while none runs; `failure_message` says why the last process ended.

    `adopted`: an earlier headgate process started Envoy. `probe` is the path of its unix socket for `headgate try`,
    `admin` that of Envoy's admin interface.
    """

    pid: int = 0
    adopted: bool = False
    restarts: int = 0
    failure_message: str = ""
    probe: str = ""
    admin: str = ""


class ProxyCertificate(Answer, frozen=True, kw_only=True):
    """The certificate in a proxy's configuration. `message` says why it is missing, or why it can't be renewed.

    `issue_time` is later than `not_before_time`, because a certificate is valid from some minutes before its issue.
    """

    identity: str = ""
    issue_time: Time = None
    not_before_time: Time = None
    not_after_time: Time = None
    message: str = ""


class ProxyStatus(Answer, frozen=True, kw_only=True):
    """The state of a proxy: whether it acknowledged what headgate sent. `message` explains each state except InSync.

    `waiting_since_time` is when the oldest response without an answer was sent. `serves`: the proxy has a configuration from this headgate process or an earlier one, and uses it also while disconnected. It is
    false for a disconnected proxy whose pod is being deleted.
    """

    state: ProxyState
    message: str = ""
    connection_time: Time = None
    serves: bool = False
    last_acknowledged_time: Time = None
    waiting_since_time: Time = None
    types: tuple[ResourceType, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    last_refusal: Refusal | None = None
    process: ProxyProcess | None = None
    certificate: ProxyCertificate | None = None


class Proxy(Answer, frozen=True, kw_only=True):
    """One proxy. A sidecar has the namespace and the name of its pod; a gateway is in `headgate-system`.

    `service_account` belongs to the pod. `workloads` has the pod's controller and the owner of that, as `KIND/NAME`. `revision` is the
    revision of headgate that renders its configuration; empty for the default one.
    """

    metadata: ObjectName
    node: str
    status: ProxyStatus
    service_account: str = ""
    workloads: tuple[str, ...] = ()
    revision: str = ""
    api_version: str = API_VERSION
    kind: str = "Proxy"


class ProxyList(AnswerList, frozen=True, kw_only=True):
    """Proxies, sorted by namespace and name."""

    items: tuple[Proxy, ...]
    kind: str = "ProxyList"


ResourceState = Literal["Held", "Pending", "Refused"]
"""`Held`: the proxy acknowledged the current version. `Pending`: the version was not sent yet, or the proxy has not answered.
`Refused`: the proxy rejected it (NACK)."""


class ConfigResource(Answer, frozen=True, kw_only=True):
    """An xDS resource. `object` is the user's object from which it is made; null for resources that every proxy has.

    `version` is the current version, as in Envoy's config dump; `held_version` is the version that the proxy acknowledged
    last. `content` is the current message with redacted private keys, if it was requested.
    """

    type: TypeName
    name: str
    object: Key | None
    state: ResourceState
    version: str
    held_version: str = ""
    message: str = ""
    content: Mapping[str, Any] | None = None


class ProxyConfig(Answer, frozen=True, kw_only=True):
    """The configuration of a proxy: its xDS resources, and whether it acknowledged them."""

    metadata: ObjectName
    node: str
    resources: tuple[ConfigResource, ...]
    api_version: str = API_VERSION
    kind: str = "ProxyConfig"


class SidecarDecision(Answer, frozen=True, kw_only=True):
    """Whether a pod like this one gets a sidecar when it is created now, and the setting that decides it."""

    injected: bool
    setting: InjectionSetting
    message: str


class SidecarProxy(Answer, frozen=True, kw_only=True):
    """The proxy in a pod's sidecar, with the state and message of its Proxy. `serves`: it has received a configuration."""

    state: ProxyState
    message: str
    serves: bool


class AddedSidecar(Answer, frozen=True, kw_only=True):
    """A Sidecar that was added to a pod, or that selects the pod.

    `generation` is the generation that was added, and `newest` the Sidecar's current generation; 0 means none.
    `conflicts` has items that were not added, because the pod has items of the same names.
    """

    name: str
    generation: int
    newest: int
    conflicts: tuple[str, ...] = ()


class PodSidecar(Answer, frozen=True, kw_only=True):
    """Why a pod has a sidecar or none.

    `messages` has facts that explain its behavior, and `advice_messages` say what to do to change it.
    """

    metadata: ObjectName
    sidecar: SidecarMode
    decision: SidecarDecision
    proxy: SidecarProxy | None = None
    sidecars: tuple[AddedSidecar, ...] = ()
    messages: tuple[str, ...] = ()
    advice_messages: tuple[str, ...] = ()
    api_version: str = API_VERSION
    kind: str = "PodSidecar"


class PublishedFinding(Answer, frozen=True, kw_only=True):
    """A mistake in an object, or a note about it. `field` is a path in the object.

    Findings about cluster-scoped objects are in the namespace `default`, like Events about them.
    """

    metadata: ObjectName
    object: Key
    severity: Severity
    reason: str
    field: str
    message: str
    api_version: str = API_VERSION
    kind: str = "Finding"


class FindingList(AnswerList, frozen=True, kw_only=True):
    """All findings. `objects` is the number of objects that were checked."""

    objects: int
    items: tuple[PublishedFinding, ...]
    kind: str = "FindingList"


class TapRequest(Answer, frozen=True, kw_only=True):
    """A request as the proxy received it. Values of headers and of the query are `[redacted]` unless they are requested."""

    method: str
    authority: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)


class TapResponse(Answer, frozen=True, kw_only=True):
    """A response. `status` is 0 if there was none; `flags` and `details` have Envoy's response flags and details."""

    status: int
    flags: tuple[str, ...] = ()
    details: str = ""
    grpc_status: str = ""


class TapPeer(Answer, frozen=True, kw_only=True):
    """The source or the destination of a request: a pod, a Service and its port, or an address outside the mesh."""

    pod: str = ""
    service: str = ""
    port: int = 0
    identity: str = ""
    address: str = ""


class TapRoute(Answer, frozen=True, kw_only=True):
    """The route that the client's proxy chose. `object` is the object that defines the route, `name` the route's name in it."""

    object: Key
    name: str = ""


class TapAccess(Answer, frozen=True, kw_only=True):
    """The authorization decision of the server's proxy, and the rule that allowed the request.

    `object` is null if no TrafficTarget or XAuthorizationPolicy selects the workload. With `audited`, the rules are in audit mode:
    `would_deny` says that they do not allow the request. `message` says why rules do not allow it, enforced or in audit mode.
    """

    allowed: bool
    object: Key | None = None
    rule: str = ""
    audited: bool = False
    would_deny: bool = False
    message: str = ""


class TapEvent(Answer, frozen=True, kw_only=True):
    """A finished request, as a proxy observed it. `side` is `Client` for the caller's proxy, else `Server`.

    Only the client's side has `route`. The server's side has `access`; the client's has it if the server denied the request, or would
    deny it without audit mode. `latency_microseconds` is None without a
    complete response. `secured`: the request used mutual TLS between proxies. `trace_id` is empty without a trace.
    """

    start_time: Time
    proxy: ObjectName
    side: Literal["Client", "Server"]
    request: TapRequest
    response: TapResponse
    source: TapPeer
    destination: TapPeer
    latency_microseconds: int | None = None
    secured: bool = False
    route: TapRoute | None = None
    access: TapAccess | None = None
    trace_id: str = ""
    api_version: str = API_VERSION
    kind: str = "TapEvent"


class TapNotice(Answer, frozen=True, kw_only=True):
    """A notice in a stream of TapEvents: `dropped` events were left out since the last notice, as the `message` explains."""

    dropped: int
    message: str
    api_version: str = API_VERSION
    kind: str = "TapNotice"
