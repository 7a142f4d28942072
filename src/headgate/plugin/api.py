"""The metrics API as its client sees it: lists, one resource, its edges (R82, R92 to R95), and what its refusals mean."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from headgate.durations import seconds
from headgate.errors import HeadgateError, NotFound, Unavailable
from headgate.plugin.errors import Forbidden, NoMetrics
from headgate.plugin.kinds import Kind
from headgate.plugin.kubectl_proxy import KubectlProxy, Response
from headgate.plugin.metrics import parse_window

Document = Mapping[str, Any]
"""A TrafficMetrics or a TrafficMetricsList, as the API wrote it."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked about: a kind in `namespace`, in all when it is empty; `window` as in `1m`, the API's own when empty.

    `by` is what tells the other ends of edges apart, `namespace` or `kind`; each by itself when it is empty (R88).
    """

    kind: Kind
    namespace: str = ""
    selector: str = ""
    window: str = ""
    by: str = ""

    def path(self, namespace: str = "", name: str = "", sub: str = "") -> str:
        """Return the path of the kind, of one resource, or of a part of it, with the query."""
        inside = namespace or self.namespace
        parts = ["", "apis", self.kind.api]
        parts += ["namespaces", quote(inside, safe="")] if inside and self.kind.namespaced else []
        parts += [self.kind.plural, *(quote(part, safe="") for part in (name, sub) if part)]
        chosen = self.selector if not name or sub else ""
        given = {"labelSelector": chosen, "t": self.window, "by": self.by if sub else ""}
        query = {key: value for key, value in given.items() if value}
        return "/".join(parts) + (f"?{urlencode(query)}" if query else "")


class MetricsApi:
    """Asks. Every call raises HeadgateError that says what to do about it. `warnings` are those of all answers, once each."""

    def __init__(self, proxy: KubectlProxy) -> None:
        self._proxy = proxy
        self.warnings: dict[str, None] = {}

    def list(self, query: Query) -> Document:
        """Return a TrafficMetricsList of a kind. Raises NoMetrics, Forbidden, Unavailable."""
        return self._read(query, query.path(), verb="list")

    def one(self, query: Query, name: str) -> Document:
        """Return the TrafficMetrics of a resource. Raises NotFound and what `list` raises."""
        return self._read(query, query.path(name=name), verb="get")

    def edges(self, query: Query, name: str, namespace: str = "") -> Document:
        """Return a TrafficMetricsList of a resource's edges. Raises NotFound and what `list` raises."""
        return self._read(query, query.path(namespace, name, "edges"), verb="get", sub="/edges")

    def _read(self, query: Query, path: str, *, verb: str, sub: str = "") -> Document:
        response = self._proxy.get(path)
        self.warnings |= dict.fromkeys(response.warnings)
        if response.status == 200:
            document = _document(response)
            self.warnings |= dict.fromkeys(_other_window(query, document))
            return document
        raise self._error(query, response, verb, query.kind.plural + sub)

    def _error(self, query: Query, response: Response, verb: str, resource: str) -> HeadgateError:
        """Return the error that an answer means."""
        message, group = error_message(response), query.kind.api.partition("/")[0]
        if response.status == 404:
            return self._not_found_error(query, message)
        if response.status == 403:
            return forbidden_error(message, group, resource, verb)
        if response.status == 401:
            return HeadgateError(f"the API does not know you ({message}): log in again, or choose another --context")
        if response.status in (501, 503):
            return Unavailable(_no_numbers(query.kind.api, response, message))
        if not is_api_status(response):
            return no_api_error(message)
        return HeadgateError(f"the API answers with {response.status}: {message}")

    def _not_found_error(self, query: Query, message: str) -> HeadgateError:
        """Tell a resource that is not there from a kind, and from an API, that is not."""
        response = self._proxy.get(f"/apis/{query.kind.api}")
        if response.status != 200:
            return NoMetrics(
                f"this cluster has no metrics API ({query.kind.api}): run `headgate up`, or install an implementation"
                f" of it, which registers the APIService {_api_service(query.kind.api)}"
            )
        served = sorted(str(one.get("name")) for one in _document(response).get("resources") or ())
        if query.kind.plural not in served:
            return NoMetrics(f"{query.kind.api} has no metrics of {query.kind.plural} here; it has {', '.join(served)}")
        return NotFound(message)


def items(document: Document) -> list[Document]:
    """Return the items of a list; one resource is the only item."""
    found = document.get("items") if "items" in document else [document]
    return [item for item in found or () if isinstance(item, dict)]


def _other_window(query: Query, document: Document) -> Iterator[str]:
    """Yield a warning when numbers are of another window than asked for: no API can look back for ever."""
    item = next((item for item in items(document) if item.get("window")), None)
    if query.window and item and parse_window(item) != seconds(query.window):
        yield f"these are the numbers of the last {item['window']}: the API has none of the last {query.window}"


def resource_name(item: Document) -> tuple[str, str]:
    """Return namespace and name of the resource that an item is about."""
    resource = item.get("resource") or {}
    metadata = item.get("metadata") or {}
    return (
        str(resource.get("namespace") or metadata.get("namespace") or ""),
        str(resource.get("name") or metadata.get("name") or ""),
    )


def _no_numbers(api: str, response: Response, message: str) -> str:
    """Tell an API that has no numbers from one whose server is away."""
    if is_api_status(response):
        return f"the metrics API can't answer now: {message}"
    return f"nothing answers for {api} ({message}): see `kubectl get apiservice {_api_service(api)}`"


def _api_service(api: str) -> str:
    group, _, version = api.partition("/")
    return f"{version}.{group}"


def _document(response: Response) -> Document:
    try:
        return msgspec.json.decode(response.body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise HeadgateError(f"the API's answer is no JSON object: {error}") from error


def forbidden_error(message: str, group: str, resource: str, verb: str) -> Forbidden:
    """Return the error for an answer 403, with the rule that would allow the request."""
    rule = f"apiGroups: [{group}], resources: [{resource}], verbs: [{verb}]"
    return Forbidden(f"{message or 'the API refuses'}. A Role with this rule allows it: {rule}")


def no_api_error(message: str) -> Unavailable:
    """Return the error for an answer that is not the API's own."""
    return Unavailable(f"no API answers ({message}): is the cluster up, and is this the right --context?")


def is_api_status(response: Response) -> bool:
    """Say whether an answer is the API's own: what stands before it, kubectl's proxy too, answers in plain words."""
    return response.body.lstrip().startswith(b"{")


def error_message(response: Response) -> str:
    """Return what an answer that is an error says."""
    if is_api_status(response):
        return str(_document(response).get("message") or "")
    return response.body.decode(errors="replace").strip().partition("\n")[0]
