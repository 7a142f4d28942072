"""Answers GET, POST, PUT, PATCH and DELETE on objects, collections and subresources."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from headgate.api import responses
from headgate.api.http_server import StreamResponse
from headgate.api.request_body import read_body
from headgate.api.selectors import selected_name
from headgate.api.status import ApiError, from_error, method_not_allowed, no_such_path, unsupported_value
from headgate.errors import Cause, DecodeError, StoreError
from headgate.resources.kind import ServedKind
from headgate.resources.kind_set import KindSet
from headgate.resources.meta import Object
from headgate.resources.schema.catalog import schemas
from headgate.standalone.apiserver.local_pods import LocalPods
from headgate.standalone.apiserver.objects import Objects, PathTarget, Subresource, WriteResult, as_served
from headgate.standalone.apiserver.patches import APPLY, apply_configuration, parse_patch
from headgate.standalone.apiserver.request_parsing import (
    Continue,
    Renderer,
    ResourcePath,
    check_resource_version,
    dry_run,
    log_options,
    media_type,
    read_object,
    read_value,
    renderer_for,
    selector,
    write_options,
)
from headgate.standalone.apiserver.sessions import SUBRESOURCES, Sessions
from headgate.standalone.apiserver.watches import LONGEST_SECONDS, WatchOptions, sort_key, watch

_PROPAGATION_POLICIES = ("Foreground", "Background", "Orphan")

_Verb: TypeAlias = Callable[[Request, PathTarget, Any], Awaitable[Response]]


class ResourceApi:
    """Answers requests for objects of the registry's kinds. Raises ApiError."""

    def __init__(self, objects: Objects, pods: LocalPods | None, closing: asyncio.Event, sessions: Sessions) -> None:
        self._objects = objects
        self._pods = pods
        self._closing = closing
        change = {"GET": self._get, "PUT": self._replace, "PATCH": self._patch}
        self._verbs: Mapping[str, Mapping[str, _Verb]] = {
            "collection": {"GET": self._list, "POST": self._create, "DELETE": self._delete_many},
            "object": {**change, "DELETE": self._delete},
            "status": change,
            "scale": change,
            "eviction": {"POST": self._evict},
            "log": {"GET": self._log},
            **{name: {"GET": sessions.refuse, "POST": sessions.refuse} for name in SUBRESOURCES},
        }

    @property
    def kinds(self) -> KindSet:
        """The kinds that are served now."""
        return self._objects.store.kinds

    async def check(self) -> None:
        """Check that the store can persist a write. Raises Unavailable."""
        await self._objects.store.check()

    async def answer(self, request: Request, path: ResourcePath) -> Response:
        """Answer a request for an object, a collection or a subresource."""
        target, subresource = path
        if subresource and subresource not in target.served.subresources:
            raise _unsupported_subresource(target.served, subresource)
        verb = self._verbs[subresource or ("object" if target.name else "collection")].get(request.method)
        if verb is None:
            raise method_not_allowed()
        return await verb(request, target, subresource)

    async def _get(self, request: Request, target: PathTarget, subresource: Subresource) -> Response:
        if responses.query_flag(request.query_params, "watch") and subresource != "scale":
            return await self._list(request, target, subresource)
        return self._answer(request, target, await self._objects.get(target), subresource)

    async def _list(self, request: Request, target: PathTarget, _: str) -> Response:
        renderer = renderer_for(request, target.served)
        if responses.query_flag(request.query_params, "watch"):
            return self._watch(request, target, renderer)
        items, metadata = await self._page(request, target)
        return responses.json_response(renderer.many([as_served(obj, target.served) for obj in items], metadata))

    async def _page(self, request: Request, target: PathTarget) -> tuple[Sequence[Object], dict[str, Any]]:
        """Return a page of objects and the list's metadata. All pages have the resource version of the first page."""
        query, kind = request.query_params, target.served.kind
        selects = selector(query, target)
        limit = responses.int_parameter(query, "limit") or 0
        try:
            listing = await self._objects.store.list(kind.group, kind.kind, target.namespace)
        except StoreError as error:
            raise from_error(error, target.served, "") from error
        revision = int(listing.version)
        check_resource_version(query, revision)
        items = [obj for obj in listing.items if selects(obj)]
        if token := query.get("continue"):
            after = Continue.read(token)
            revision = after.revision
            items = [obj for obj in items if sort_key(obj) > (after.namespace, after.name)]
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if limit and len(items) > limit:
            metadata["continue"] = Continue(revision, *sort_key(items[limit - 1])).encoded()
            if not query.get("labelSelector") and not query.get("fieldSelector"):
                metadata["remainingItemCount"] = len(items) - limit
            items = items[:limit]
        return items, metadata

    def _watch(self, request: Request, target: PathTarget, renderer: Renderer) -> Response:
        query = request.query_params
        since = responses.int_parameter(query, "resourceVersion") or None
        initial = query.get("sendInitialEvents")
        options = WatchOptions(
            since=None if initial == "true" else since,
            selects=selector(query, target),
            name=target.name or selected_name(query.get("fieldSelector", "")),
            bookmarks=responses.query_flag(query, "allowWatchBookmarks"),
            initial_end=initial == "true" and responses.query_flag(query, "allowWatchBookmarks"),
            seconds=min(responses.int_parameter(query, "timeoutSeconds") or LONGEST_SECONDS, LONGEST_SECONDS),
        )
        lines = watch(self._objects.store, target, options, renderer.events())
        return StreamResponse(lines, self._closing, media_type=responses.JSON)

    async def _create(self, request: Request, target: PathTarget, subresource: Subresource) -> Response:
        options = write_options(request)
        obj = await read_object(request)
        if target.served.kind.namespaced and not target.namespace:
            raise method_not_allowed(f"create the object at namespaces/NAMESPACE/{target.served.plural}")
        return self._written(request, target, await self._objects.create(target, obj, options), subresource)

    async def _replace(self, request: Request, target: PathTarget, subresource: Subresource) -> Response:
        options = write_options(request)
        obj = await read_object(request)
        change = (lambda old: _with_replicas(old, obj)) if subresource == "scale" else (lambda _: obj)
        written = await self._objects.change(target, change, options, subresource=subresource)
        return self._written(request, target, written, subresource)

    async def _patch(self, request: Request, target: PathTarget, subresource: Subresource) -> Response:
        options = write_options(request)
        content, body, scale = media_type(request), await read_body(request), subresource == "scale"
        if content == APPLY:
            config = apply_configuration(request.query_params, body)
            config = _applied_scale(config) if scale else config
            written = await self._objects.apply(target, config, options, subresource=subresource)
        else:
            schema = schemas()["autoscaling", "v1", "Scale"] if scale else target.schema
            patch = parse_patch(content, body, schema, strategic=not target.served.kind.is_custom)
            change = (lambda old: _with_replicas(old, patch(scale_of(old)))) if scale else patch
            written = await self._objects.change(target, change, options, subresource=subresource)
        return self._written(request, target, written, subresource)

    async def _delete(self, request: Request, target: PathTarget, _: str) -> Response:
        options = await _delete_options(request)
        current = await self._objects.get(target)
        done = await self._objects.delete(target, options, dry_run=dry_run(options.get("dryRun")))
        answer = done.object if done.waits else _success(target.served, current["metadata"])
        return responses.json_response(answer, warnings=done.warnings)

    async def _delete_many(self, request: Request, target: PathTarget, _subresource: str) -> Response:
        if "deletecollection" not in target.served.verbs or (target.served.kind.namespaced and not target.namespace):
            raise method_not_allowed(f"delete {target.served.plural} one by one, or all of one namespace")
        options = await _delete_options(request)
        items, _ = await self._page(request, target)
        for obj in items:
            object_target = target._replace(name=obj["metadata"]["name"])
            try:
                await self._objects.delete(object_target, options, dry_run=dry_run(options.get("dryRun")))
            except ApiError as error:
                if error.code != 404:  # 404: the object was already deleted together with its owner
                    raise
        return responses.json_response(_success(target.served, {}))

    async def _evict(self, request: Request, target: PathTarget, _: str) -> Response:
        """Delete a pod for `kubectl drain`. PodDisruptionBudgets are not supported, so an eviction is always allowed."""
        eviction = await read_object(request)
        if eviction.get("kind", "Eviction") != "Eviction":
            raise ApiError(400, "the body of an eviction must be an Eviction of policy/v1")
        options = _checked_options(eviction.get("deleteOptions") or {})
        is_dry_run = any(map(dry_run, (request.query_params.get("dryRun"), options.get("dryRun"))))
        await self._objects.delete(target, options, dry_run=is_dry_run)
        return responses.json_response({**_success(target.served, {}), "code": 201}, code=201)

    async def _log(self, request: Request, target: PathTarget, _: str) -> Response:
        options = log_options(request.query_params, await self._objects.get(target))
        if self._pods is None:
            raise ApiError(501, "this server runs no pods, so it has no logs; use `headgate up`")
        try:
            pieces = self._pods.logs(target.key, options)
        except StoreError as error:
            raise from_error(error, target.served, target.name) from error
        return StreamResponse(pieces, self._closing, media_type="text/plain")

    def _written(
        self, request: Request, target: PathTarget, written: WriteResult, subresource: Subresource
    ) -> Response:
        code = 201 if written.created else 200
        return self._answer(request, target, written.object, subresource, code=code, warnings=written.warnings)

    def _answer(self, request: Request, target: PathTarget, obj: Object, subresource: str, **options: Any) -> Response:
        shown = scale_of(obj) if subresource == "scale" else renderer_for(request, target.served).one(obj)
        return responses.json_response(shown, **options)


_NO_EPHEMERAL_CONTAINERS = (
    "the embedded API adds no containers to a running pod, and needs none: its containers see all programs of the machine; "
    "use `kubectl exec -it POD -- sh`, or `kubectl debug POD --copy-to=NAME --container=CONTAINER -- COMMAND`"
)


def _unsupported_subresource(served: ServedKind, subresource: str) -> ApiError:
    if subresource == "ephemeralcontainers":
        return ApiError(501, _NO_EPHEMERAL_CONTAINERS)
    if subresource in served.kind.unserved:
        return ApiError(501, f"the embedded API does not support {served.plural}/{subresource}")
    return no_such_path()


async def _delete_options(request: Request) -> dict[str, Any]:
    """Return the DeleteOptions of the body; query parameters are the defaults. Raises ApiError 400."""
    options = _checked_options(await read_value(request, empty={}))
    given = {
        name: request.query_params[name] for name in ("propagationPolicy", "dryRun") if name in request.query_params
    }
    return _checked_options({**given, **options})


def _checked_options(options: Any) -> dict[str, Any]:
    """Return DeleteOptions if they are valid. Raises ApiError 400."""
    if not isinstance(options, dict) or options.get("kind", "DeleteOptions") != "DeleteOptions":
        raise ApiError(400, "the options of a deletion must be DeleteOptions")
    preconditions = options.get("preconditions") or {}
    if not isinstance(preconditions, dict) or not all(
        isinstance(preconditions.get(name) or "", str) for name in ("uid", "resourceVersion")
    ):
        raise ApiError(400, "preconditions: must be an object whose uid and resourceVersion are strings")
    policy = options.get("propagationPolicy")
    if policy is not None and policy not in _PROPAGATION_POLICIES:
        raise ApiError(400, unsupported_value("propagationPolicy", policy, _PROPAGATION_POLICIES))
    return options


def _success(served: ServedKind, metadata: Mapping[str, Any]) -> dict[str, Any]:
    details = {"name": metadata.get("name"), "group": served.group, "kind": served.plural, "uid": metadata.get("uid")}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }


def scale_of(obj: Object) -> dict[str, Any]:
    """Return the Scale (autoscaling/v1) of a workload. The selector of a ReplicationController is a map of labels."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    selector = spec.get("selector") or {}
    labels = selector if obj["kind"] == "ReplicationController" else selector.get("matchLabels") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": {"replicas": spec.get("replicas", 1)},
        "status": {
            "replicas": (obj.get("status") or {}).get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        },
    }


def _applied_scale(scale: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an applied Scale to an apply configuration of its workload."""
    spec, metadata = scale.get("spec"), scale.get("metadata")
    given = {"spec": {"replicas": spec["replicas"]}} if isinstance(spec, Mapping) and "replicas" in spec else {}
    return {"metadata": metadata if isinstance(metadata, Mapping) else {}, **given}


def _with_replicas(obj: Object, scale: Mapping[str, Any]) -> Object:
    spec, metadata = scale.get("spec"), scale.get("metadata")
    replicas = spec.get("replicas", 0) if isinstance(spec, Mapping) else None
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        raise DecodeError(Cause("spec.replicas", "must be an integer greater than or equal to 0"))
    revision = metadata.get("resourceVersion") if isinstance(metadata, Mapping) else None
    new_metadata = {**obj["metadata"], "resourceVersion": revision or obj["metadata"]["resourceVersion"]}
    return {**obj, "metadata": new_metadata, "spec": {**(obj.get("spec") or {}), "replicas": replicas}}
