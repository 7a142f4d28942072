"""Webhooks that a cluster's API server calls: injection, validation, and conversion between versions.

`/inject` adds sidecars to pods, `/validate` checks the objects of the mesh, and `/convert` converts them. The handlers
use the newest snapshot of the control plane: while the API server waits for them, they send no request to it.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from headgate.admission.injection import INJECT_LABELED, OF_REVISIONS, SelectedNamespace, Sidecars
from headgate.admission.review import Review, review
from headgate.api.request_body import check_depth, decode_body, read_body
from headgate.api.responses import json_response
from headgate.api.status import ApiError, invalid_object
from headgate.errors import Cause, DecodeError, Invalid
from headgate.kinds import EXPERIMENTAL, GATEWAY
from headgate.objects.ports import View
from headgate.plan.quote import LONGEST, shortened
from headgate.resources.decode import Check, kept_status, type_mistakes, without_nulls
from headgate.resources.kind import api_version, split_api_version
from headgate.resources.meta import Input, Key, Object, part
from headgate.resources.pod_templates import pod_of_template, template_path
from headgate.resources.registry import find_written
from headgate.resources.versions import from_hub, to_hub

MOST_CHARACTERS = 4096
"""The most characters of all warnings. With more, the API server shortens each to LONGEST, and drops the last ones."""
MOST_WARNINGS = MOST_CHARACTERS // LONGEST
LARGEST_REVIEW = 7 * 1024 * 1024
"""The longest review in bytes, as in controller-runtime: it has an object before and after a write, each of at most 3 MiB."""
LARGEST_CONVERSION = 32 * 1024 * 1024
"""The longest conversion in bytes. The API server reads 10,000 objects at a time, 10 to 20 MB of TrafficSplits."""
_MOST_LARGE_BODIES = (
    4  # clients of webhooks are not authenticated: with as many long bodies at a time they fill the memory
)
ORPHAN = "Orphan"
"""The propagationPolicy of a deletion that keeps the objects that the deleted one owns."""
_SERVICE = ("v1", "Service")
_SHARED_GROUPS = (GATEWAY, EXPERIMENTAL)
"""The groups of which other controllers implement further kinds, or kinds of later releases."""
_CONTROLLERS = ("system:kube-controller-manager", "system:serviceaccount:kube-system:")


class _User(Input, frozen=True, kw_only=True):
    username: str = ""


class _DeleteOptions(Input, frozen=True, kw_only=True):
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None

    @property
    def orphan(self) -> bool:
        """Whether the objects that the deleted one owns stay: `kubectl delete --cascade=orphan`."""
        return self.propagation_policy == ORPHAN or bool(self.orphan_dependents)


class _Request(Input, frozen=True, kw_only=True):
    uid: str
    operation: str = ""
    namespace: str = ""
    object: Object | None = None
    old_object: Object | None = None
    dry_run: bool = False
    user_info: _User = _User()
    options: _DeleteOptions | None = None


class _Review(Input, frozen=True, kw_only=True):
    api_version: str
    request: _Request


class _Conversion(Input, frozen=True, kw_only=True):
    uid: str
    desired_api_version: str = msgspec.field(name="desiredAPIVersion")
    objects: tuple[Object, ...] = ()


class _ConversionReview(Input, frozen=True, kw_only=True):
    api_version: str
    request: _Conversion


class WriteWarnings(Protocol):
    """A function that returns warnings about a write, its effect last.

    `old` is None if the write creates an object, `new` is None if it deletes one. With `orphan`, the deletion keeps the
    objects that the deleted one owns.
    """

    def __call__(
        self, old: Object | None, new: Object | None, *, dry_run: bool, orphan: bool = False
    ) -> Awaitable[Sequence[str]]: ...


async def no_warnings(
    old: Object | None,  # noqa: ARG001 - of WriteWarnings
    new: Object | None,  # noqa: ARG001
    *,
    dry_run: bool,  # noqa: ARG001
    orphan: bool = False,  # noqa: ARG001
) -> Sequence[str]:
    """Return nothing: the WriteWarnings of a server without a control plane of its own."""
    return ()


class Reviews(NamedTuple):
    """What the webhooks review with: `check` validates objects, `warn` returns warnings about their meaning.

    `sidecars` are added to new pods. `view` returns the objects that injection reads: Namespaces, TLSConfigs and Sidecars.
    """

    sidecars: Sidecars
    check: Check
    warn: WriteWarnings
    view: Callable[[], View]


def create_webhooks(reviews: Reviews, is_ready: Callable[[], bool], more: Sequence[Route] = ()) -> Starlette:
    """Return the application of the webhooks, with `/healthz` and `/readyz` for the kubelet, and `more` routes."""
    handlers = _Handlers(reviews)

    def ready(_request: Request) -> Response:
        return PlainTextResponse("ok") if is_ready() else PlainTextResponse("not ready", 503)

    return Starlette(
        routes=[
            *(
                Route(f"{path}{end}", partial(handlers.inject, labeled=labeled, revised=bool(end)), methods=["POST"])
                for path, labeled in (("/inject", False), (INJECT_LABELED, True))
                for end in ("", OF_REVISIONS)
            ),
            Route("/validate", handlers.validate, methods=["POST"]),
            Route("/convert", handlers.convert, methods=["POST"]),
            Route("/healthz", lambda _request: PlainTextResponse("ok")),
            Route("/readyz", ready),
            *more,
        ]
    )


class _Handlers:
    def __init__(self, reviews: Reviews) -> None:
        self._reviews = reviews
        self._large_bodies = asyncio.Semaphore(_MOST_LARGE_BODIES)

    async def inject(self, request: Request, *, labeled: bool, revised: bool) -> Response:
        """Answer a review of a new pod with a JSON patch. The API server has selected the namespace by `INJECT` if it is `labeled`.

        It is `revised` if it has the label `REVISION`.
        """
        injected = partial(self._injected, labeled=labeled, revised=revised)
        return await _with_text_errors(self._reviewed(request, injected))

    async def validate(self, request: Request) -> Response:
        """Answer a review of an object of the mesh: allowed with warnings, or denied with a list of all mistakes.

        A Service is never denied, because Kubernetes itself validates it. A kind of the Gateway API that headgate does not
        know is allowed.
        """
        return await _with_text_errors(self._reviewed(request, self._validated))

    async def convert(self, request: Request) -> Response:
        """Answer a ConversionReview with all objects in the desired version, or with the mistake of the first invalid one.

        A stored object with a mistake, which another mesh has accepted, keeps its content: with an error, the API server
        could not list the objects of its kind at all. The control plane reports the mistake.
        """
        return await _with_text_errors(self._converted(request))

    async def _reviewed(self, request: Request, review: Callable[[_Request], Awaitable[dict[str, Any]]]) -> Response:
        body = await read_body(request, LARGEST_REVIEW, self._large_bodies)
        received = decode_body(body, _Review, "an AdmissionReview")
        check_depth([received.request.object, received.request.old_object])
        try:
            response = {"allowed": True, **await review(received.request)}
        except (Invalid, DecodeError) as error:
            response = {"allowed": False, "status": invalid_object(_key(received.request), error.causes).status()}
        answer = {"uid": received.request.uid, **response}
        return json_response({"apiVersion": received.api_version, "kind": "AdmissionReview", "response": answer})

    async def _converted(self, request: Request) -> Response:
        body = await read_body(request, LARGEST_CONVERSION, self._large_bodies)
        review = decode_body(body, _ConversionReview, "a ConversionReview")
        check_depth(review.request.objects)
        group, version = split_api_version(review.request.desired_api_version)
        answer: dict[str, Any] = {"uid": review.request.uid}
        try:
            answer["convertedObjects"] = [_in_version(obj, group, version) for obj in review.request.objects]
            answer["result"] = {"status": "Success"}
        except DecodeError as error:
            answer["result"] = {"status": "Failure", "message": str(error)}
        return json_response({"apiVersion": review.api_version, "kind": "ConversionReview", "response": answer})

    async def _injected(self, request: _Request, *, labeled: bool, revised: bool) -> dict[str, Any]:
        pod = {"spec": {}, **without_nulls(request.object or {})}
        _check_types(pod, "v1", "Pod")
        metadata = {**(pod.get("metadata") or {}), "namespace": request.namespace}
        view = SelectedNamespace(self._reviews.view(), request.namespace, injected=labeled, revised=revised)
        created = {**pod, "apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        reviewed = review(created, None, view, self._reviews.sidecars).passed()
        patch = list(_patch(pod, reviewed.object, namespace=request.namespace))
        if not patch:
            return _warnings(reviewed.warnings)
        encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
        return {"patchType": "JSONPatch", "patch": encoded, **_warnings(reviewed.warnings)}

    async def _validated(self, request: _Request) -> dict[str, Any]:
        if request.operation == "DELETE":
            return await self._deleted(request)
        obj = request.object or {}
        if template_path(obj):
            return self._validated_workload(obj, request.old_object)
        if _is_foreign(obj):
            return {}
        kept = kept_status(obj, request.old_object)
        checked = self._reviews.check({name: part for name, part in obj.items() if name not in kept}, request=True)
        if checked.causes and (obj.get("apiVersion"), obj.get("kind")) == _SERVICE:
            return {}
        if checked.causes:
            raise Invalid(*checked.causes)
        reviewed = self._review(obj, request.old_object)
        warnings = await self._reviews.warn(_stored(request), to_hub(obj), dry_run=request.dry_run)
        return _warnings([*reviewed.warnings, *warnings])

    def _review(self, new: Object, old: Object | None) -> Review:
        return review(new, old, self._reviews.view(), self._reviews.sidecars).passed()

    async def _deleted(self, request: _Request) -> dict[str, Any]:
        """Allow a deletion, with warnings. The controllers of Kubernetes delete many objects and read no warnings."""
        old = _stored(request)
        if old is None or request.user_info.username.startswith(_CONTROLLERS):
            return {}
        orphan = request.options is not None and request.options.orphan
        return _warnings(await self._reviews.warn(old, None, dry_run=request.dry_run, orphan=orphan))

    def _validated_workload(self, obj: Object, old: Object | None) -> dict[str, Any]:
        new, before = without_nulls(obj), without_nulls(old or {})
        _check_types(pod_of_template(new), "v1", "Pod", where=f"{template_path(obj)}.")
        is_readable = old and not type_mistakes(pod_of_template(before), "v1", "Pod")
        return _warnings(self._review(new, before if is_readable else None).warnings)


def _in_version(obj: Object, group: str, version: str) -> Object:
    """Return an object in a version. Raises DecodeError for a mistake in an object that is not stored yet."""
    try:
        return from_hub(to_hub(obj), group, version)
    except DecodeError:
        if part(obj, "metadata").get("uid"):
            return {**obj, "apiVersion": api_version(group, version)}
        raise


def _is_foreign(obj: Object) -> bool:
    """Return whether an object has a kind or version of the Gateway API that headgate does not know: another controller validates it."""
    version, kind = str(obj.get("apiVersion", "")), str(obj.get("kind", ""))
    return split_api_version(version)[0] in _SHARED_GROUPS and not find_written(version, kind)


def _stored(request: _Request) -> Object | None:
    """Return the object before a write; None if there is none, or if it can't be read."""
    old = request.old_object
    try:
        return to_hub(old) if old and not type_mistakes(old) else None
    except DecodeError:
        return None


def _warnings(texts: Iterable[str]) -> dict[str, Any]:
    warnings = list(texts)
    if sum(map(len, warnings)) > MOST_CHARACTERS:
        warnings = [shortened(text, LONGEST) for text in warnings]
    if len(warnings) > MOST_WARNINGS:
        warnings = [*warnings[: MOST_WARNINGS - 1], warnings[-1]]  # the last one is the effect of the write
    return {"warnings": warnings} if warnings else {}


async def _with_text_errors(response: Awaitable[Response]) -> Response:
    """Return the response; an ApiError becomes a response with its message."""
    try:
        return await response
    except ApiError as error:
        return PlainTextResponse(str(error), error.code)


def _check_types(obj: Object, version: str, kind: str, *, where: str = "") -> None:
    """Check the types of an object's fields, which begin with `where`. Raises Invalid.

    An API server sends objects that it has decoded, other clients send anything.
    """
    if causes := type_mistakes(obj, version, kind):
        raise Invalid(*(Cause(f"{where}{cause.field}", cause.message) for cause in causes))


def _key(request: _Request) -> Key:
    """Return the key of a reviewed object. A pod of a controller has a prefix of its future name."""
    obj = request.object or {}
    group, _ = split_api_version(str(obj.get("apiVersion", "")))
    metadata = part(obj, "metadata")
    name = metadata.get("name") or metadata.get("generateName") or ""
    return Key(group, str(obj.get("kind", "")), request.namespace, str(name))


def _patch(old: Object, new: Object, *, namespace: str) -> Iterator[Mapping[str, Any]]:
    """Yield JSON patch operations that replace the changed fields of `metadata` and `spec`."""
    for field in ("metadata", "spec"):
        before, after = part(old, field), dict(part(new, field))
        if field == "metadata" and after.get("namespace") == namespace and "namespace" not in before:
            del after["namespace"]
        for name, value in after.items():
            if before.get(name) != value:
                yield {"op": "add", "path": f"/{field}/{name}", "value": value}
