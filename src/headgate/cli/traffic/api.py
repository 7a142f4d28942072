"""A client of the metrics API: lists of resources, a single resource, and the edges of a resource (R82, R92 to R95)."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from headgate.cli.traffic.errors import Forbidden, NoMetrics
from headgate.cli.traffic.kinds import MetricsKind
from headgate.cli.traffic.kubectl_proxy import KubectlProxy, ProxiedResponse
from headgate.cli.traffic.metrics import parse_window
from headgate.durations import seconds
from headgate.errors import HeadgateError, NotFound, Unavailable

INSPECT = "inspect.headgate.dev/v1beta1"
INSTALL = "run `headgate install`, or on one machine `headgate up`"
_EXACT_S, _ROUNDED_S = 120, 30
"""The longest window that headgate answers exactly, and by how much longer ones may be shorter, in seconds."""
_NO_PATH = "could not find the requested resource"

Document = Mapping[str, Any]
"""A TrafficMetrics or TrafficMetricsList, as the API returned it."""


class MetricsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query for a kind in `namespace`, or in all namespaces when it is empty.

    `window` is a duration such as `1m`; empty for the API's default. With `uncertainty`, headgate's API adds the standard
    deviation of latencies and confidence intervals; other implementations ignore it. `by` groups the peers of edges by `namespace` or
    `kind`; when it is empty, each peer is separate (R88).
    """

    kind: MetricsKind
    namespace: str = ""
    selector: str = ""
    window: str = ""
    by: str = ""
    uncertainty: bool = False

    def path(self, namespace: str = "", name: str = "", sub: str = "") -> str:
        """Return the path, with query parameters, of the kind, of a resource, or of a subresource."""
        namespace = namespace or self.namespace
        parts = ["", "apis", self.kind.api]
        parts += ["namespaces", quote(namespace, safe="")] if namespace and self.kind.namespaced else []
        parts += [self.kind.plural, *(quote(part, safe="") for part in (name, sub) if part)]
        chosen = self.selector if not name or sub else ""
        given = {"labelSelector": chosen, "t": self.window, "by": self.by if sub else ""}
        given |= {"uncertainty": "true"} if self.uncertainty else {}
        query = {key: value for key, value in given.items() if value}
        return "/".join(parts) + (f"?{urlencode(query)}" if query else "")


class MetricsClient:
    """Reads the metrics API. Errors are HeadgateErrors that name the next step. `warnings` are from the responses."""

    def __init__(self, proxy: KubectlProxy) -> None:
        self._proxy = proxy
        self.warnings: dict[str, None] = {}

    def list(self, query: MetricsQuery) -> Document:
        """Return the TrafficMetricsList of a kind. Raises NoMetrics, Forbidden, Unavailable."""
        return self._read(query, query.path(), verb="list")

    def get(self, query: MetricsQuery, name: str) -> Document:
        """Return the TrafficMetrics of a resource. Raises NotFound, and what `list` raises."""
        return self._read(query, query.path(name=name), verb="get")

    def edges(self, query: MetricsQuery, name: str, namespace: str = "") -> Document:
        """Return the TrafficMetricsList of a resource's edges. Raises NotFound, and what `list` raises."""
        return self._read(query, query.path(namespace, name, "edges"), verb="get", sub="/edges")

    def _read(self, query: MetricsQuery, path: str, *, verb: str, sub: str = "") -> Document:
        response = self._proxy.get(path)
        self.warnings |= dict.fromkeys(response.warnings)
        if response.status == 200:
            document = _document(response)
            self.warnings |= dict.fromkeys(_other_window(query, document))
            return document
        raise self._error(query, response, verb, query.kind.plural + sub)

    def _error(self, query: MetricsQuery, response: ProxiedResponse, verb: str, resource: str) -> HeadgateError:
        """Return the error for a response."""
        message, group = error_message(response), query.kind.api.partition("/")[0]
        if response.status == 404:
            return self._not_found_error(query, message)
        if response.status == 403:
            return forbidden_error(message, group, resource, verb)
        if response.status == 401:
            return HeadgateError(
                f"You must be logged in to the server ({message}): log in again, or choose another --context"
            )
        if response.status in (501, 503):
            return Unavailable(_unavailable_message(query.kind.api, response, message))
        if not is_api_status(response):
            return no_api_error(message)
        return HeadgateError(f"the API responded with {response.status}: {message}")

    def _not_found_error(self, query: MetricsQuery, message: str) -> HeadgateError:
        """Return the error for a 404: the API, the kind or the resource is missing."""
        response = self._proxy.get(f"/apis/{query.kind.api}")
        if response.status != 200:
            return NoMetrics(
                f"this cluster has no metrics API ({query.kind.api}); {INSTALL}; or install another implementation that"
                f" registers the APIService {_api_service(query.kind.api)}"
            )
        served = sorted(str(resource.get("name")) for resource in _document(response).get("resources") or ())
        if query.kind.plural not in served:
            return NoMetrics(
                f"{query.kind.api} has no metrics of {query.kind.plural} in this cluster; it has {', '.join(served)}"
            )
        return NotFound(message)


def items(document: Document) -> list[Document]:
    """Return the items of a list, or a single resource as the only item."""
    entries = document.get("items") if "items" in document else [document]
    return [entry for entry in entries or () if isinstance(entry, dict)]


def _other_window(query: MetricsQuery, document: Document) -> Iterator[str]:
    """Yield a warning when the API used a different window than the query requested.

    Windows of more than two minutes begin up to half a minute later in headgate.
    """
    metrics = next((metrics for metrics in items(document) if metrics.get("window")), None)
    if not query.window or not metrics:
        return
    used, requested = parse_window(metrics), seconds(query.window)
    if requested < used:
        yield f"the metrics cover the last {metrics['window']}, because proxies report too rarely for the requested {query.window}"
    elif requested - used > (_ROUNDED_S if requested > _EXACT_S else 0):
        yield f"the metrics cover the last {metrics['window']}, because the API stores less than the requested {query.window}"


def resource_name(metrics: Document) -> tuple[str, str]:
    """Return the namespace and name of an item's resource."""
    resource = metrics.get("resource") or {}
    metadata = metrics.get("metadata") or {}
    return (
        str(resource.get("namespace") or metadata.get("namespace") or ""),
        str(resource.get("name") or metadata.get("name") or ""),
    )


def _unavailable_message(api: str, response: ProxiedResponse, message: str) -> str:
    """Return the message for 501 and 503: the API has no metrics, or its server is unavailable."""
    if is_api_status(response):
        return f"the metrics API has no metrics now: {message}"
    return f"the server of {api} is unavailable ({message}); see `kubectl get apiservice {_api_service(api)}`"


def _api_service(api: str) -> str:
    group, _, version = api.partition("/")
    return f"{version}.{group}"


def _document(response: ProxiedResponse) -> Document:
    try:
        return msgspec.json.decode(response.body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise HeadgateError(f"the response of the API is not a JSON object: {error}") from error


def forbidden_error(message: str, group: str, resource: str, verb: str) -> Forbidden:
    """Return the error for a 403, with the RBAC rule that would allow the request."""
    rule = f"apiGroups: [{group}], resources: [{resource}], verbs: [{verb}]"
    return Forbidden(f"{message or 'forbidden by the API'}. A Role with this rule allows it: {rule}")


def no_api_error(message: str) -> Unavailable:
    """Return the error for a response that does not come from a Kubernetes API server."""
    return Unavailable(
        f"the API server can't be reached ({message}); check that the cluster runs and that --context is right"
    )


def inspect_error(response: ProxiedResponse, resource: str, verb: str) -> HeadgateError:
    """Return the error for a response of the inspect API; RBAC authorizes `resource` and `verb`."""
    status, message = response.status, error_message(response)
    if status == 404 and (not is_api_status(response) or _NO_PATH in message):
        return NoMetrics(f"this cluster has no inspect API ({INSPECT}), or an older one; {INSTALL}")
    if not is_api_status(response):
        return no_api_error(message)
    if status == 404:
        return NotFound(message)
    if status == 403:
        return forbidden_error(message, INSPECT.partition("/")[0], resource, verb)
    kind = Unavailable if status in (501, 503) else HeadgateError
    return kind(f"the API responded with {status}: {message}")


def is_api_status(response: ProxiedResponse) -> bool:
    """Return whether a response comes from the API server, which sends JSON; proxies like `kubectl proxy` send text."""
    return response.body.lstrip().startswith(b"{")


def error_message(response: ProxiedResponse) -> str:
    """Return the message of an error response: the message of a Status object, or the first line of a text."""
    if is_api_status(response):
        return str(_document(response).get("message") or "")
    return response.body.decode(errors="replace").strip().partition("\n")[0]
