"""The metrics API as its client sees it: lists, one resource, its edges (R82, R92 to R95), and what its refusals mean."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from headgate.durations import seconds
from headgate.errors import HeadgateError, NotFound, Unavailable
from headgate.plugin.errors import Forbidden, NoMetrics
from headgate.plugin.kinds import Kind
from headgate.plugin.numbers import window_of
from headgate.plugin.transport import Answer, Proxy

Document = Mapping[str, Any]
"""A TrafficMetrics or a TrafficMetricsList, as the API wrote it."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
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


class Api:
    """Asks. Every call raises HeadgateError that says what to do about it. `warnings` are those of all answers, once each."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.warnings: dict[str, None] = {}

    def list(self, asked: Asked) -> Document:
        """Return a TrafficMetricsList of a kind. Raises NoMetrics, Forbidden, Unavailable."""
        return self._read(asked, asked.path(), verb="list")

    def one(self, asked: Asked, name: str) -> Document:
        """Return the TrafficMetrics of a resource. Raises NotFound and what `list` raises."""
        return self._read(asked, asked.path(name=name), verb="get")

    def edges(self, asked: Asked, name: str, namespace: str = "") -> Document:
        """Return a TrafficMetricsList of a resource's edges. Raises NotFound and what `list` raises."""
        return self._read(asked, asked.path(namespace, name, "edges"), verb="get", sub="/edges")

    def _read(self, asked: Asked, path: str, *, verb: str, sub: str = "") -> Document:
        answer = self._proxy.get(path)
        self.warnings |= dict.fromkeys(answer.warnings)
        if answer.status == 200:
            document = _document(answer)
            self.warnings |= dict.fromkeys(_other_window(asked, document))
            return document
        raise self._refusal(asked, answer, verb, asked.kind.plural + sub)

    def _refusal(self, asked: Asked, answer: Answer, verb: str, resource: str) -> HeadgateError:
        """Return the error that an answer means."""
        said, group = message_of(answer), asked.kind.api.partition("/")[0]
        if answer.status == 404:
            return self._missing(asked, said)
        if answer.status == 403:
            return forbidden(said, group, resource, verb)
        if answer.status == 401:
            return HeadgateError(f"the API does not know you ({said}): log in again, or choose another --context")
        if answer.status in (501, 503):
            return Unavailable(_no_numbers(asked.kind.api, answer, said))
        if not is_status(answer):
            return no_api(said)
        return HeadgateError(f"the API answers with {answer.status}: {said}")

    def _missing(self, asked: Asked, said: str) -> HeadgateError:
        """Tell a resource that is not there from a kind, and from an API, that is not."""
        answer = self._proxy.get(f"/apis/{asked.kind.api}")
        if answer.status != 200:
            return NoMetrics(
                f"this cluster has no metrics API ({asked.kind.api}): run `headgate up`, or install an implementation"
                f" of it, which registers the APIService {_api_service(asked.kind.api)}"
            )
        served = sorted(str(one.get("name")) for one in _document(answer).get("resources") or ())
        if asked.kind.plural not in served:
            return NoMetrics(f"{asked.kind.api} has no metrics of {asked.kind.plural} here; it has {', '.join(served)}")
        return NotFound(said)


def items(document: Document) -> list[Document]:
    """Return the items of a list; one resource is the only item."""
    found = document.get("items") if "items" in document else [document]
    return [item for item in found or () if isinstance(item, dict)]


def _other_window(asked: Asked, document: Document) -> Iterator[str]:
    """Yield a warning when numbers are of another window than asked for: no API can look back for ever."""
    item = next((item for item in items(document) if item.get("window")), None)
    if asked.window and item and window_of(item) != seconds(asked.window):
        yield f"these are the numbers of the last {item['window']}: the API has none of the last {asked.window}"


def name_of(item: Document) -> tuple[str, str]:
    """Return namespace and name of the resource that an item is about."""
    resource = item.get("resource") or {}
    metadata = item.get("metadata") or {}
    return (
        str(resource.get("namespace") or metadata.get("namespace") or ""),
        str(resource.get("name") or metadata.get("name") or ""),
    )


def _no_numbers(api: str, answer: Answer, said: str) -> str:
    """Tell an API that has no numbers from one whose server is away."""
    if is_status(answer):
        return f"the metrics API can't answer now: {said}"
    return f"nothing answers for {api} ({said}): see `kubectl get apiservice {_api_service(api)}`"


def _api_service(api: str) -> str:
    group, _, version = api.partition("/")
    return f"{version}.{group}"


def _document(answer: Answer) -> Document:
    try:
        return msgspec.json.decode(answer.body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise HeadgateError(f"the API's answer is no JSON object: {error}") from error


def forbidden(said: str, group: str, resource: str, verb: str) -> Forbidden:
    """Return the error for an answer 403, with the rule that would allow the request."""
    rule = f"apiGroups: [{group}], resources: [{resource}], verbs: [{verb}]"
    return Forbidden(f"{said or 'the API refuses'}. A Role with this rule allows it: {rule}")


def no_api(said: str) -> Unavailable:
    """Return the error for an answer that is not the API's own."""
    return Unavailable(f"no API answers ({said}): is the cluster up, and is this the right --context?")


def is_status(answer: Answer) -> bool:
    """Say whether an answer is the API's own: what stands before it, kubectl's proxy too, answers in plain words."""
    return answer.body.lstrip().startswith(b"{")


def message_of(answer: Answer) -> str:
    """Return what an answer that is an error says."""
    if is_status(answer):
        return str(_document(answer).get("message") or "")
    return answer.body.decode(errors="replace").strip().partition("\n")[0]
