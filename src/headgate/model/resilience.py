"""What a proxy does when endpoints of a Service fail: ejection, retries, timeouts and limits (docs/tasks/resilience.md)."""

from headgate.resources.meta import Value

CONNECT_MS = 5_000
RETRIES_MS = 10_000
"""The longest time of all connection attempts of a request: proxies keep a removed cluster for it (`xds.server`)."""


class Ejection(Value, frozen=True, kw_only=True):
    """When a proxy ejects an endpoint, that is, sends it no request for some time. Times are in milliseconds.

    `gateway_errors` limits consecutive responses 502, 503 or 504, `errors` consecutive 5xx responses, and `local_errors`
    consecutive attempts without a response: refused, reset or timed out. 0 counts nothing. The first ejection of an
    endpoint lasts `time`, each further one `time` longer, up to `max_time`. At most `max_percent` of the endpoints are
    ejected at once.
    """

    gateway_errors: int = 5
    local_errors: int = 5
    errors: int = 0
    time: int = 10_000
    max_time: int = 300_000
    max_percent: int = 50


class Retry(Value, frozen=True, kw_only=True):
    """Which requests a proxy repeats in addition to unsent ones, and how often. Times are in milliseconds.

    `codes` has statuses of any method, and `grpc` names of gRPC statuses. `conditions` apply to idempotent methods only:
    `5xx`, `gateway-error` and `reset`. `budget` is the maximum percentage of repeated requests among the active ones.
    """

    retries: int = 2
    codes: tuple[int, ...] = ()
    grpc: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ("reset",)
    backoff: int = 25
    max_backoff: int = 250
    budget: int = 20


class RetryBudget(Value, frozen=True, kw_only=True):
    """The limit of a proxy's active retries to a Service, of all routes together (GEP-3388).

    It is `percent` of the requests of the last `interval` (milliseconds), and at least `minimum`.
    """

    percent: int
    interval: int
    minimum: int


class ServiceTimeouts(Value, frozen=True, kw_only=True):
    """Timeouts of a Service in milliseconds; 0 means the default.

    `request` limits a request with all attempts, `attempt` each attempt, `connect` the opening of a connection. After `idle`, a
    proxy closes a connection without requests.
    """

    request: int = 0
    attempt: int = 0
    connect: int = 0
    idle: int = 0


class Limits(Value, frozen=True, kw_only=True):
    """The largest numbers of connections, waiting requests, active requests and active retries of a proxy; 0 means no limit."""

    connections: int = 0
    pending: int = 0
    requests: int = 0
    retries: int = 0


class Resilience(Value, frozen=True, kw_only=True):
    """The settings of a Service. Without `ejection`, no endpoint is ejected; without `retry`, the default applies.

    `budget` is that of a policy, which replaces the budget of `retry` and the limit of active retries.
    """

    ejection: Ejection | None = Ejection()
    retry: Retry | None = None
    timeouts: ServiceTimeouts = ServiceTimeouts()
    limits: Limits = Limits()
    budget: RetryBudget | None = None

    @property
    def connect(self) -> int:
        """The time to open a connection in milliseconds. All attempts of a request together take at most 10 s by default."""
        return self.timeouts.connect or min(CONNECT_MS, RETRIES_MS // (self.retry or Retry()).retries)


DEFAULT = Resilience()
