"""Traces: a proxy continues the trace of each request, or begins one, and sends spans to a collector (docs/tasks/traces.md).

Envoy's OpenTelemetry tracer reads and writes the W3C headers. Three things are missing there, and are made by changes of
headers before Envoy reads them:

1. Envoy forwards a malformed `traceparent` and records nothing. It is removed, so that the request begins a new trace.
2. Envoy does not know B3. Its headers become a `traceparent`, unless the client sent a valid one too.
3. Envoy samples by the request's `x-request-id`, which must be a UUID, and ignores that the caller has sampled. So the
   client's own ID is set aside until Envoy has decided, and a request of a sampled trace gets the header `x-client-trace-id`,
   by which Envoy samples it.

The share of traces that a proxy begins is a value of its runtime layer (`tap.LAYER`), so that a change ends no connection.
"""

from collections.abc import Callable, Iterator, Mapping

from headgate.envoy import names, pb
from headgate.envoy.node_ids import GATEWAY, SIDECAR
from headgate.model.routing import Mesh, Workload
from headgate.resources.meta import Value

EXPORT_SECONDS = 5
FLUSH_MS = 1_000
FLUSH_SPANS = 256
"""A proxy sends its spans after `FLUSH_MS`, or as soon as it has `FLUSH_SPANS`."""
MAX_SPANS = 2_048
"""The number of spans that a proxy keeps for a collector that is slow. It drops further ones."""
MACHINE_GATEWAY = "headgate-gateway"
SHARE = "tracing.random_sampling"
_PARENT, _B3 = "x-headgate-traceparent", "x-headgate-b3"
_DETECTOR = "envoy.tracers.opentelemetry.resource_detectors.static_config"
_FILTER = "headgate.traces"
_SAMPLED = "x-client-trace-id"
_SET_ASIDE = {"x-request-id": "x-headgate-request-id", _SAMPLED: "x-headgate-client-trace-id"}
"""The headers of a client that Envoy must not read, and the names in which they are kept until it has decided."""
_UNTRACED = "untraced"
"""A request ID that Envoy does not sample, because it is no UUID."""
_PATH = "%PATH(NQ:PATH)%"
_ATTRIBUTES = {
    "http.request.method": "%REQ(:METHOD)%",
    "http.url": f"%REQ(:SCHEME)%://%REQ(:AUTHORITY)%{_PATH}",
    "url.scheme": "%REQ(:SCHEME)%",
    "url.path": _PATH,
    "user_agent.original": "%REQ(USER-AGENT)%",
}
_OUTBOUND = {
    "headgate.route": "%METADATA(ROUTE:headgate:origin)%",
    "headgate.rule": "%METADATA(ROUTE:headgate:name)%",
    "headgate.backend": "%UPSTREAM_METADATA(headgate:backend)%",
    "headgate.pod": "%UPSTREAM_HOST_NAME_WITHOUT_PORT%",
}
_INBOUND = {
    "headgate.caller": "%DOWNSTREAM_PEER_URI_SAN%",
    "headgate.access_rule": "%DYNAMIC_METADATA(envoy.filters.http.rbac:enforced_effective_policy_id)%",
}
_NUMBERS = {"http.response.status_code": "%RESPONSE_CODE%", "rpc.grpc.status_code": "%GRPC_STATUS_NUMBER%"}
_NO_TRACE = f"00-{'f' * 32}-{'f' * 16}-00"


class SpanResource(Value, frozen=True, kw_only=True):
    """What sends the spans of a connection manager: a workload's sidecar, or a gateway."""

    service: str
    namespace: str = ""
    pod: str = ""

    @property
    def attributes(self) -> Mapping[str, str]:
        """Return the attributes by the semantic conventions of OpenTelemetry."""
        return {
            "service.name": self.service,
            **({"service.namespace": self.namespace} if self.namespace else {}),
            **({"k8s.namespace.name": self.namespace, "k8s.pod.name": self.pod} if self.pod else {}),
            **({"service.instance.id": f"{self.namespace}/{self.pod}"} if self.pod else {}),
        }


def of_workload(workload: Workload | None) -> SpanResource | None:
    """Return what a workload's sidecar sends spans as; None if it sends none."""
    if not workload or not workload.traces:
        return None
    namespace, pod = workload.name.split("/")
    return SpanResource(service=workload.traces.service, namespace=namespace, pod=pod)


def of_gateways(name: str) -> SpanResource:
    """Return what the proxies of a Gateway or a Service (`namespace/name`) send spans as; empty: the gateway of a machine."""
    namespace, _, own = name.rpartition("/")
    return SpanResource(service=own or MACHINE_GATEWAY, namespace=namespace)


def trace_requests(connection: pb.HttpConnectionManager, resource: SpanResource, *, inbound: bool = False) -> None:
    """Make a connection manager continue traces and send spans. `inbound` requests go to the proxy's own pod."""
    connection.generate_request_id.CopyFrom(pb.BoolValue(value=True))
    connection.preserve_external_request_id = True
    connection.tracing.CopyFrom(_tracing(resource, inbound=inbound))
    mutation = pb.pack(pb.EarlyHeaderMutation(mutations=_early()))
    connection.early_header_mutation_extensions.append(pb.TypedExtensionConfig(name=_FILTER, typed_config=mutation))
    connection.http_filters.insert(0, _restore())


def begin_no_trace(connection: pb.HttpConnectionManager) -> None:
    """Make a connection manager mark requests without a trace as not sampled, so that no proxy behind it samples them."""
    absent = pb.HeaderValueOption.HeaderAppendAction.ADD_IF_ABSENT
    mutation = pb.pack(pb.EarlyHeaderMutation(mutations=[_set("traceparent", _NO_TRACE, absent)]))
    connection.early_header_mutation_extensions.append(pb.TypedExtensionConfig(name=_FILTER, typed_config=mutation))


def runtime_fields(sampling: int) -> Mapping[str, pb.Value]:
    """Return the values of the runtime layer for a sampling share in ten-thousandths."""
    share = {"numerator": pb.Value(number_value=sampling), "denominator": pb.Value(string_value="TEN_THOUSAND")}
    return {
        SHARE: pb.Value(struct_value=pb.Struct(fields=share)),
        "tracing.opentelemetry.flush_interval_ms": pb.Value(number_value=FLUSH_MS),
        "tracing.opentelemetry.min_flush_spans": pb.Value(number_value=FLUSH_SPANS),
    }


def sampling_shares(mesh: Mesh) -> Callable[[str], int | None]:
    """Return the function from a proxy's node ID to its sampling share; None if the mesh has no traces."""
    if not mesh.tracing:
        return lambda _node: None
    default = mesh.tracing.sampling
    own = {f"{SIDECAR}/{workload.name}": workload.traces.sampling for workload in mesh.workloads if workload.traces}
    own |= {f"{GATEWAY}/{pod.name}": pod.sampling for pod in mesh.gateway_pods if pod.sampling is not None}
    return lambda node: own.get(node, default)


# --- the headers before Envoy decides


def _early() -> Iterator[pb.HeaderMutationRule]:
    for name, aside in _SET_ASIDE.items():
        yield _set(aside, f"%REQ({name.upper()})%")
        yield pb.HeaderMutationRule(remove=name)
    yield _set(_B3, "%REQ(X-B3-TRACEID)%-%REQ(X-B3-SPANID)%-%REQ(X-B3-SAMPLED)%%REQ(X-B3-FLAGS)%")
    yield _set(_B3, "%REQ(B3)%")
    yield _set(_PARENT, f"%CEL({_parent()})%")
    yield pb.HeaderMutationRule(remove=_B3)
    yield pb.HeaderMutationRule(remove="traceparent")
    yield _set("traceparent", f"%REQ({_PARENT.upper()})%")
    yield pb.HeaderMutationRule(remove=_PARENT)
    sampled = f"'traceparent' in request.headers && {_header('traceparent')}.matches('[13579bdf]$')"
    yield _set(_SAMPLED, f"%CEL({sampled} || {_b3_says('[1d]')} ? '1' : '')%")
    yield _set("x-request-id", f"%CEL({_b3_says('0')} ? '{_UNTRACED}' : '')%")


def _b3_says(decision: str) -> str:
    """Return the CEL expression whether the client sent a B3 decision (a regular expression) without IDs."""
    headers = " || ".join(
        f"'{name}' in request.headers && {_header(name)}.matches('^{decision}$')" for name in ("b3", "x-b3-sampled")
    )
    return f"!('traceparent' in request.headers) && ({headers})"


def _restore() -> pb.HttpFilter:
    """Return the filter that gives a request the headers back that were set aside."""
    mutations = [
        rule
        for name, aside in _SET_ASIDE.items()
        for rule in (
            pb.HeaderMutationRule(remove=name),
            _set(name, f"%REQ({aside.upper()})%"),
            pb.HeaderMutationRule(remove=aside),
        )
    ]
    mutation = pb.HeaderMutation(mutations=pb.HeaderMutations(request_mutations=mutations))
    return pb.HttpFilter(name=_FILTER, typed_config=pb.pack(mutation))


def _set(
    name: str,
    value: str,
    action: pb.HeaderValueOption.HeaderAppendAction = pb.HeaderValueOption.HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD,
) -> pb.HeaderMutationRule:
    """Return the rule that sets a header; it does nothing if the value is empty."""
    header = pb.HeaderValue(key=name, value=value)
    return pb.HeaderMutationRule(append=pb.HeaderValueOption(header=header, append_action=action))


def _parent() -> str:
    """Return the CEL expression of a request's valid `traceparent`, or of the one in its B3 headers.

    `[0-f]` is one instruction of RE2 for one character, and `[0-9a-f]` three: CEL permits only 100 in an expression.
    """
    header = _header("traceparent")
    valid = (
        f"{header}.matches('^[0-f]{{2}}-[0-f]{{32}}-[0-f]{{16}}-[0-f]{{2}}$')"
        f" && {header}.matches('^[0-9a-f-]+$') && !{header}.matches('^ff|-0+-')"
    )
    b3 = _header(_B3)
    parts = [f"'traceparent' in request.headers && {valid} ? {header}"]
    parts.append("!('b3' in request.headers || 'x-b3-traceid' in request.headers) ? ''")
    parts.append(f"!{b3}.matches('^[0-9a-f]+-[0-9a-f]+(-|$)') || {b3}.matches('^0+-|^[0-f]+-0+(-|$)') ? ''")
    for digits, start in ((32, "00-"), (16, f"00-{'0' * 16}")):
        # "d" is B3's decision to debug, which samples. Without a decision, the trace is not sampled.
        ids = f"[0-f]{{{digits}}}-[0-f]{{16}}"
        parts += [
            rf"{b3}.matches('^{ids}{after}') ? re.extract({b3}, '^({ids})', '{start}\\1-{flags}')"
            for after, flags in (("-[1d]", "01"), ("(-|$)", "00"))
        ]
    return " : ".join([*parts, "''"])


def _header(name: str) -> str:
    return f"request.headers['{name}']"


# --- spans


def _tracing(resource: SpanResource, *, inbound: bool) -> pb.HttpConnectionManager.Tracing:
    detected = pb.StaticResourceDetector(attributes=resource.attributes)
    tracer = pb.OpenTelemetryTracer(
        grpc_service=pb.GrpcService(
            envoy_grpc=pb.GrpcService.EnvoyGrpc(cluster_name=names.TRACES), timeout=pb.Duration(seconds=EXPORT_SECONDS)
        ),
        service_name=resource.service,
        resource_detectors=[pb.TypedExtensionConfig(name=_DETECTOR, typed_config=pb.pack(detected))],
        max_cache_size=pb.UInt32Value(value=MAX_SPANS),
    )
    name = "%REQ(:METHOD)% %UPSTREAM_CLUSTER%"
    return pb.HttpConnectionManager.Tracing(
        random_sampling=pb.Percent(value=0),  # until the runtime layer has a value
        spawn_upstream_span=pb.BoolValue(value=True),
        custom_tags=_tags(inbound=inbound),
        operation=name,
        upstream_operation=name,
        provider=pb.TracingProvider.Http(name="envoy.tracers.opentelemetry", typed_config=pb.pack(tracer)),
    )


def _tags(*, inbound: bool) -> Iterator[pb.CustomTag]:
    """Yield the attributes of spans: semantic conventions, and names of objects.

    Envoy adds older ones of its own. Its `http.url` has the query, which may have secrets, and is replaced. Envoy computes
    attributes for traces that are not sampled too, so none is a CEL expression: `re.extract` alone costs a request 80,000
    instructions, half of what it costs without traces.
    """
    texts = {**_ATTRIBUTES, **(_INBOUND if inbound else _OUTBOUND)}
    yield from (pb.CustomTag(tag=name, value=value) for name, value in texts.items())
    kind = pb.CustomTag.ValueType.INT
    yield from (pb.CustomTag(tag=name, value=value, value_type=kind) for name, value in _NUMBERS.items())
