"""The verbs on resources: GET, POST, PUT, PATCH and DELETE on objects, collections and subresources."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from headgate.api import media
from headgate.api.kinds import Served
from headgate.api.listening import until
from headgate.api.selectors import selected_name
from headgate.api.status import ApiError, from_error, no_such_path
from headgate.errors import StoreError
from headgate.resources.definitions import catalogue
from headgate.resources.meta import Object
from headgate.standalone.apiserver import bodies, paths, scale
from headgate.standalone.apiserver.logs import LogSource, begun, log_options
from headgate.standalone.apiserver.objects import (
    Objects,
    Subresource,
    Target,
    WriteOptions,
    Written,
    as_served,
)
from headgate.standalone.apiserver.patch_types import APPLY, apply_configuration, change_of
from headgate.standalone.apiserver.paths import Continue, Place
from headgate.standalone.apiserver.shapes import Shape, shape_of
from headgate.standalone.apiserver.watches import LONGEST_SECONDS, WatchOptions, watch

_NOT_BUILT = {
    "Pod": {"exec", "attach", "portforward", "proxy", "binding", "ephemeralcontainers", "resize"},
    "Service": {"proxy"},
    "ServiceAccount": {"token"},
    "Namespace": {"finalize"},
}


class ResourceApi:
    """Answers requests for the kinds of the registry. Every call raises ApiError."""

    def __init__(self, objects: Objects, logs: LogSource | None, closing: asyncio.Event) -> None:
        self._objects = objects
        self._logs = logs
        self._closing = closing

    async def check(self) -> None:
        """Return when a write would be kept. Raises Unavailable."""
        await self._objects.store.check()

    async def answer(self, request: Request, place: Place) -> Response:
        """Answer one request."""
        target, subresource = place
        if subresource and subresource not in target.served.subresources:
            raise _absent(target.served, subresource)
        apart: Mapping[str, Callable[..., Awaitable[Response]]] = {
            "log": self._log,
            "eviction": self._evict,
            "scale": self._scale,
        }
        if subresource in apart:
            return await apart[subresource](request, target)
        on_object: Mapping[str, Callable[..., Awaitable[Response]]] = {
            "GET": self._get,
            "PUT": self._replace,
            "PATCH": self._patch,
        }
        if subresource:
            verb = on_object.get(request.method)
            return await verb(request, target, "status") if verb else _refuse(request, target)
        if target.name:
            if request.method == "DELETE":
                return await self._delete(request, target)
            verb = on_object.get(request.method)
            return await verb(request, target, "") if verb else _refuse(request, target)
        on_many = {"GET": self._list, "POST": self._create, "DELETE": self._delete_many}
        many = on_many.get(request.method)
        return await many(request, target) if many else _refuse(request, target)

    async def _get(self, request: Request, target: Target, _: Subresource) -> Response:
        if media.flag(request.query_params, "watch"):
            return await self._list(request, target)
        shape = shape_of(request, target.served)
        return media.answer(shape.one(await self._objects.get(target)))

    async def _list(self, request: Request, target: Target) -> Response:
        shape = shape_of(request, target.served)
        if media.flag(request.query_params, "watch"):
            return self._watch(request, target, shape)
        items, metadata = await self._page(request, target)
        return media.answer(shape.many([as_served(obj, target.served) for obj in items], metadata))

    async def _page(self, request: Request, target: Target) -> tuple[Sequence[Object], dict[str, Any]]:
        """Return the objects to show and the list's metadata; a later page bears the revision of the first one."""
        query, kind = request.query_params, target.served.kind
        selects = paths.selection(query, target)
        limit = paths.number(query, "limit") or 0
        try:
            listing = await self._objects.store.list(kind.group, kind.kind, target.namespace)
        except StoreError as error:
            raise from_error(error, target.served, "") from error
        revision = int(listing.version)
        paths.check_revision(query, revision)
        items = [obj for obj in listing.items if selects(obj)]
        if token := query.get("continue"):
            after = paths.read_token(token)
            revision = after.revision
            items = [obj for obj in items if _place_of(obj) > (after.namespace, after.name)]
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if limit and len(items) > limit:
            metadata["continue"] = paths.continue_token(Continue(revision, *_place_of(items[limit - 1])))
            if not query.get("labelSelector") and not query.get("fieldSelector"):
                metadata["remainingItemCount"] = len(items) - limit
            items = items[:limit]
        return items, metadata

    def _watch(self, request: Request, target: Target, shape: Shape) -> Response:
        query = request.query_params
        since = paths.number(query, "resourceVersion") or None
        initial = query.get("sendInitialEvents")
        options = WatchOptions(
            since=None if initial == "true" else since,
            selects=paths.selection(query, target),
            name=target.name or selected_name(query.get("fieldSelector", "")),
            bookmarks=media.flag(query, "allowWatchBookmarks"),
            initial_end=initial == "true" and media.flag(query, "allowWatchBookmarks"),
            seconds=min(paths.number(query, "timeoutSeconds") or LONGEST_SECONDS, LONGEST_SECONDS),
        )
        lines = watch(self._objects.store, target, options, shape.events(), self._closing)
        return StreamingResponse(lines, media_type=media.JSON)

    async def _create(self, request: Request, target: Target) -> Response:
        options = _write_options(request)
        obj = await bodies.read_object(request)
        if target.served.kind.namespaced and not target.namespace:
            raise ApiError(405, "name a namespace in the path to create an object: /namespaces/NAMESPACE/...")
        return self._written(request, target, await self._objects.create(target, obj, options))

    async def _replace(self, request: Request, target: Target, subresource: Subresource) -> Response:
        options = _write_options(request)
        obj = await bodies.read_object(request)
        written = await self._objects.change(target, lambda _: obj, options, subresource=subresource)
        return self._written(request, target, written)

    async def _patch(self, request: Request, target: Target, subresource: Subresource) -> Response:
        options = _write_options(request)
        media_type = bodies.media_type(request)
        body = await bodies.read_body(request)
        served = target.served
        if media_type == APPLY:
            config = apply_configuration(request.query_params, body)
            written = await self._objects.apply(target, config, options, subresource=subresource)
            return self._written(request, target, written)
        schema = catalogue.schema(served.group, served.version, served.kind.kind)
        change = change_of(media_type, body, schema, strategic=not served.kind.is_custom)
        written = await self._objects.change(target, change, options, subresource=subresource)
        return self._written(request, target, written)

    async def _delete(self, request: Request, target: Target) -> Response:
        options = await _delete_options(request)
        current = await self._objects.get(target)
        waits = await self._objects.delete(target, options, dry_run=paths.dry_run(options.get("dryRun")))
        return media.answer(waits or _deleted(target.served, current["metadata"]))

    async def _delete_many(self, request: Request, target: Target) -> Response:
        if "deletecollection" not in target.served.verbs or (target.served.kind.namespaced and not target.namespace):
            raise ApiError(405, f"{target.served.plural} can't be deleted all at once; delete them one by one")
        options = await _delete_options(request)
        items, _ = await self._page(request, target)
        for obj in items:
            one = target._replace(name=obj["metadata"]["name"])
            try:
                await self._objects.delete(one, options, dry_run=paths.dry_run(options.get("dryRun")))
            except ApiError as error:
                if error.code != 404:  # gone already, with its owner
                    raise
        return media.answer(_deleted(target.served, {}))

    async def _evict(self, request: Request, target: Target) -> Response:
        """Delete a pod as `kubectl drain` asks for it; there are no disruption budgets that could forbid it."""
        if request.method != "POST":
            return _refuse(request, target)
        eviction = await bodies.read_object(request)
        if eviction.get("kind", "Eviction") != "Eviction":
            raise ApiError(400, "the body must be an Eviction of policy/v1")
        options = eviction.get("deleteOptions") or {}
        dry_run = any(map(paths.dry_run, (request.query_params.get("dryRun"), options.get("dryRun"))))
        await self._objects.delete(target, options, dry_run=dry_run)
        return media.answer({**_deleted(target.served, {}), "code": 201}, code=201)

    async def _scale(self, request: Request, target: Target) -> Response:
        if request.method == "GET":
            return media.answer(scale.scale_of(await self._objects.get(target)))
        options = _write_options(request)
        if request.method == "PUT":
            change = scale.replaced(await bodies.read_object(request))
        elif request.method == "PATCH":
            media_type, body = bodies.media_type(request), await bodies.read_body(request)
            if media_type == APPLY:
                config = scale.applied(apply_configuration(request.query_params, body))
                written = await self._objects.apply(target, config, options, subresource="scale")
                return media.answer(scale.scale_of(written.object), warnings=written.warnings)
            schema = catalogue.schema("autoscaling", "v1", "Scale")
            change = scale.changed(change_of(media_type, body, schema, strategic=True))
        else:
            return _refuse(request, target)
        written = await self._objects.change(target, change, options, subresource="scale")
        return media.answer(scale.scale_of(written.object), warnings=written.warnings)

    async def _log(self, request: Request, target: Target) -> Response:
        if request.method != "GET":
            return _refuse(request, target)
        options = log_options(request.query_params, await self._objects.get(target))
        if self._logs is None:
            raise ApiError(501, "logs are kept by the local runtime, which does not run here")
        try:
            pieces = await begun(self._logs(target.key, options))
        except StoreError as error:
            raise from_error(error, target.served, target.name) from error
        return StreamingResponse(until(self._closing, pieces), media_type="text/plain")

    def _written(self, request: Request, target: Target, written: Written) -> Response:
        value = shape_of(request, target.served).one(written.object)
        return media.answer(value, code=201 if written.created else 200, warnings=written.warnings)


def _write_options(request: Request) -> WriteOptions:
    return paths.write_options(request.query_params, request.headers.get("user-agent", ""))


def _place_of(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _refuse(request: Request, target: Target) -> Response:
    what = "an object" if target.name else "a collection"
    raise ApiError(405, f"{request.method} is not possible on {what} of {target.served.plural}")


def _absent(served: Served, subresource: str) -> ApiError:
    if subresource in _NOT_BUILT.get(served.kind.kind, ()):
        return ApiError(501, f"{served.plural}/{subresource} is not part of headgate's embedded API")
    return no_such_path()


async def _delete_options(request: Request) -> dict[str, Any]:
    """Read DeleteOptions from the body, and from the query what the body does not say."""
    options = await bodies.read_value(request, empty={})
    if not isinstance(options, dict) or options.get("kind", "DeleteOptions") != "DeleteOptions":
        raise ApiError(400, "the body of a DELETE must be DeleteOptions")
    given = {
        name: request.query_params[name] for name in ("propagationPolicy", "dryRun") if name in request.query_params
    }
    options = {**given, **options}
    if options.get("propagationPolicy") not in (None, "Orphan", "Background", "Foreground"):
        raise ApiError(400, "propagationPolicy must be Orphan, Background or Foreground")
    return options


def _deleted(served: Served, metadata: Mapping[str, Any]) -> dict[str, Any]:
    details = {"name": metadata.get("name"), "group": served.group, "kind": served.plural, "uid": metadata.get("uid")}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }
