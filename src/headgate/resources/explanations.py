"""The answer of the inspect API about a request: where the request goes, and why.

The fields of `Explanation` are those of `headgate explain -o json`, so their names must not change.
"""

from collections.abc import Iterable

from headgate.resources.meta import Value

MUTUAL_TLS, PLAINTEXT = "mutual TLS", "plaintext"
PLAIN = "the Service itself (no route)"


class Arrival(Value, frozen=True, kw_only=True):
    """The outcome of a request at one endpoint; `workload` is `namespace/pod`, empty if unknown.

    `hop` says how the request reaches the endpoint: by mutual TLS or in plaintext. `object` and `rule` are the access
    rule that allows the request, `reason` says why it is allowed or refused, and `remedy` what the user can change.
    """

    workload: str
    address: str
    hop: str
    hop_reason: str
    allowed: bool
    object: str
    rule: str
    reason: str
    remedy: str


class Backend(Value, frozen=True, kw_only=True):
    """A backend's share of the requests, as an exact fraction and in percent.

    With a `status`, the proxy answers these requests itself.
    """

    service: str
    port: int
    share: str
    percent: float
    endpoints: int
    status: int
    reason: str
    filters: tuple[str, ...]
    arrivals: tuple[Arrival, ...]

    @property
    def is_refused(self) -> bool:
        """Say whether every endpoint refuses the request."""
        return bool(self.arrivals) and not any(item.allowed for item in self.arrivals)


class Copy(Value, frozen=True, kw_only=True):
    """The backend of a mirror, and the fraction of the requests that proxies mirror to it."""

    service: str
    port: int
    share: str
    percent: float
    arrivals: tuple[Arrival, ...]


class Tried(Value, frozen=True, kw_only=True):
    """A route and its result: `matched`, `failed` with the first unmet condition, or `not tried` after a match.

    If a rule's backends are roots of splits, the rule becomes one route for each match of these splits. `matches` are
    the matches of splits that requests of this route fit.
    """

    object: str
    name: str
    matches: tuple[str, ...]
    result: str
    condition: str

    @property
    def words(self) -> str:
        """The object that defines the route, and the rule or match: `HTTPRoute default/website, rule 0`."""
        return _words(self.object, self.name, self.matches)


class Remark(Value, frozen=True, kw_only=True):
    """A finding about an object that affects the explained request."""

    object: str
    reason: str
    field: str
    message: str


class Explanation(Value, frozen=True, kw_only=True):
    """The explanation of a request: where the request goes, and why.

    `service` or `gateway` is the `namespace/name` at which the request arrives; both are empty for an unknown host.

    `identity` is the SPIFFE ID of `caller` at the pods, empty for plaintext. `sanitized` has each header that the
    proxy removes or replaces before routing, with the reason; or why the proxy refuses the malformed request.
    `location` is the address of a redirect. `trace` is the trace of the client, which proxies continue. `nothing_left` says what happens when no backend can get traffic.
    """

    method: str
    url: str
    caller: str
    identity: str
    caller_note: str
    service: str
    gateway: str
    port: int
    protocol: str
    protocol_reason: str
    host: str
    sanitized: tuple[str, ...]
    object: str
    route: str
    matches: tuple[str, ...]
    backends: tuple[Backend, ...]
    mirrors: tuple[Copy, ...]
    filters: tuple[str, ...]
    location: str
    sticky: str
    user: str
    nothing_left: str
    candidates: tuple[Tried, ...]
    remarks: tuple[Remark, ...]
    trace: str = ""

    @property
    def words(self) -> str:
        """The object that defines the matched route, and the rule or match; empty if no route matches."""
        return _words(self.object, self.route, self.matches)


def _words(object: str, route: str, matches: Iterable[str]) -> str:
    part = f", {'match' if '/' in route else 'rule'} {route}" if route else ""
    return object + part + "".join(f", match {match}" for match in matches)
