"""CustomResourceDefinitions that a cluster has already: of an earlier installation, or of another mesh with its objects.

Of a foreign definition, `install` replaces the content and keeps the objects; an annotation has the content before, for
`uninstall`. Until the control plane is ready, objects stay stored in the version of the other mesh, so that its clients
can still read and write them. Then each object is stored in headgate's version.
"""

import asyncio
import base64
import contextlib
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from headgate.backoff import until_done
from headgate.errors import Conflict, Gone, HeadgateError, Invalid, NotFound, Unavailable
from headgate.formatting import pluralize
from headgate.kubernetes.client import Client, path_of
from headgate.kubernetes.install.custom_resources import mesh_kinds
from headgate.kubernetes.names import NAME
from headgate.resources.kind import Kind
from headgate.resources.meta import Object, annotations_of, labels_of
from headgate.resources.versions import as_version

DEFINITION = "CustomResourceDefinition"
PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ADOPTED = "headgate.dev/adopted"
"""The annotation of a definition that was there before headgate: its labels and its `spec` of that time, as JSON. With
another content, `uninstall` keeps the definition as it is."""
LONGEST_ANNOTATION = 128 * 1024
"""The longest annotation in bytes; the API server accepts 256 KiB of annotations on an object."""
PAGE = 500
MOST_WRITES = 8  # at the same time, which limits the load on the API server
MOST_SHOWN = 10  # failures in an outcome
REWRITE_S = 30.0
"""The longest time to try to write an object again: an error 500 of another mesh's dead webhook looks like one of the API server."""
POLL_S = 0.2
_APP = "app.kubernetes.io/name"
_NO_CONVERSION = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
_CHANGED = (Conflict, Unavailable)
_KINDS = {f"{kind.plural}.{kind.group}": kind for kind in mesh_kinds()}


class Adoption(msgspec.Struct, frozen=True):
    """The content of a definition before headgate took it over."""

    labels: Mapping[str, str]
    spec: Mapping[str, Any]


def is_own(definition: Object) -> bool:
    """Return whether headgate created a definition, by `headgate install` or its chart."""
    return is_installed(definition) and ADOPTED not in annotations_of(definition)


def completed(before: Object, definition: Object, *, converts: bool = False) -> Object:
    """Return the definition to write over an existing one (`before`), which may be empty.

    Until a replica `converts`, new objects are stored in the version of `before` while some are stored in other versions than
    headgate's. Otherwise an earlier headgate continues to convert them: the Service of new replicas has none yet. Raises HeadgateError if objects are stored in a version that headgate does not know.
    """
    if not before:
        return definition
    versions = {version["name"]: version for version in definition["spec"]["versions"]}
    stored, storage = _stored_versions(before), _storage(before)
    if unknown := [version for version in stored if version not in versions]:
        raise HeadgateError(
            f"the CustomResourceDefinition {before['metadata']['name']} has objects in the version {', '.join(unknown)},"
            f" which headgate does not know; write them in {' or '.join(versions)}, and remove this version from"
            " status.storedVersions"
        )
    metadata = definition["metadata"]
    if is_installed(definition) and not is_own(before):
        annotations = {**metadata.get("annotations", {}), ADOPTED: _adoption(before)}
        metadata = {**metadata, "annotations": annotations}
    spec = definition["spec"]
    if not converts and stored != [_storage(definition)]:
        spec = {**spec, "versions": _stored_in(storage, versions.values())}
    elif not converts and is_installed(before) and {} != _conversion(before) != _conversion(definition) != {}:
        spec = {**spec, "conversion": _conversion(before)}
    if before["spec"].get("preserveUnknownFields"):  # of a definition that was created as v1beta1
        spec = {**spec, "preserveUnknownFields": False}
    return {**definition, "metadata": metadata, "spec": spec}


class Definitions:
    """Migrates and releases definitions with a client. Every method raises HeadgateError if the API server rejects a request."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def needs_migration(self, definition: Object) -> bool:
        """Return whether objects may be stored in another version than the one of `definition`, or are converted elsewhere."""
        before = await self._client.get(_path(definition))
        return _stored_versions(before) != [_storage(definition)] or _conversion(before) != _conversion(definition)

    async def migrate(self, definition: Object) -> str:
        """Store each object in the version of `definition`, which is applied already. Return the outcome for users.

        The API server must be able to convert objects. An object that it rejects stays as it is, and the outcome names it.
        """
        version = _storage(definition)
        if _stored_versions(await self._client.get(_path(definition))) == [version]:
            return "configured: the new replicas convert its objects"
        count, failures = await self._rewrite_all(_KINDS[definition["metadata"]["name"]], version)
        if failures:
            return (
                f"keeps several stored versions, because objects can't be written in {version}; correct or delete them, and"
                f" install again: {_shown(failures)}"
            )
        return f"migrated: {pluralize(count, 'object is', 'objects are')} stored in {version}"

    async def unconvert(self, definition: Object) -> Object:
        """Let the API server read and delete objects without the webhook of conversions; return the definition.

        Without this, a definition can't be deleted while no replica answers: the API server first lists its objects.
        """
        path = _path(definition)
        before = await self._client.get(path)
        if (before["spec"].get("conversion") or {}).get("strategy") != "Webhook":
            return before
        return await self._client.merge(path, _NO_CONVERSION)

    async def objects(self, definitions: Iterable[Object]) -> Mapping[Kind, int | None]:
        """Return how many objects the deletion of headgate's definitions deletes, by kind; None if they can't be listed.

        They can't if no replica converts the objects.
        """
        counts: dict[Kind, int | None] = {}
        for definition in definitions:
            kind = _KINDS[definition["metadata"]["name"]]
            with contextlib.suppress(NotFound):
                if is_own(await self._client.get(_path(definition))):
                    counts[kind] = None
                    with contextlib.suppress(HeadgateError):
                        counts[kind] = len(await self._list(kind))
        return {kind: count for kind, count in counts.items() if count != 0}

    async def release(self, definition: Object) -> str:
        """Delete a definition of headgate with its objects, or give another one back. Return the outcome. Raises NotFound."""
        path = _path(definition)
        before = await self._client.get(path)
        if not is_installed(before):
            return "kept: headgate did not install it"
        before = await self.unconvert(definition)
        if is_own(before):
            await self._client.remove(path, {"propagationPolicy": "Background"})
            return "deleted"
        adoption = _adopted(before)
        if adoption:
            return await self._give_back(before, adoption)
        await self._client.merge(path, {"metadata": {"annotations": {ADOPTED: None}, "labels": {_APP: None}}})
        return "kept: it was there before headgate"

    async def _give_back(self, before: Object, adoption: Adoption) -> str:
        """Store each object in the version of the earlier content, and restore this content.

        No replica converts objects any more, and the API server returns each as if it were stored in the requested
        version. If objects are stored in several versions, they stay as they are, unless none is in headgate's: then the
        earlier content has all of these versions.
        """
        kind, version = _KINDS[before["metadata"]["name"]], _storage({"spec": adoption.spec})
        path, stored = _path(before), _stored_versions(before)
        earlier = {entry["name"] for entry in adoption.spec["versions"]}
        is_untouched = kind.versions[0] not in stored and earlier.issuperset(stored)
        if not is_untouched and stored not in ([version], [kind.versions[0]]):
            return (
                f"kept with headgate's content: its objects are stored in {' and '.join(stored)}; to restore its earlier"
                " content, install again, which stores them in one version, and then uninstall"
            )
        if not is_untouched and stored != [version]:
            await until_done(partial(self._store_in, path, version), "", on=Conflict)
            _, failures = await self._rewrite_all(kind, version)
            if failures:
                return f"kept with headgate's content: objects can't be written in {version}: {_shown(failures)}"
        try:
            await until_done(partial(self._restore, path, adoption), "", on=Conflict)
        except Invalid as error:
            return f"kept with headgate's content: the API server rejects the earlier content: {error}"
        return "kept: it was there before headgate, and has its earlier content again"

    async def _store_in(self, path: str, version: str) -> None:
        obj = await self._client.get(path)
        await self._client.put(
            path, {**obj, "spec": {**obj["spec"], "versions": _stored_in(version, obj["spec"]["versions"])}}
        )

    async def _restore(self, path: str, adoption: Adoption) -> None:
        obj = await self._client.get(path)
        annotations = {name: text for name, text in annotations_of(obj).items() if name != ADOPTED}
        metadata = {**obj["metadata"], "labels": dict(adoption.labels), "annotations": annotations}
        await self._client.put(path, {**obj, "metadata": metadata, "spec": _accepted(adoption.spec)})

    async def _wait_stored_in(self, kind: Kind, version: str) -> None:
        """Wait until the API server stores objects of a kind in a version: it reads changed definitions a moment later."""
        digest = hashlib.sha256(f"{kind.group}/{version}/{kind.kind}".encode()).digest()[:8]
        expected = base64.b64encode(digest).decode()
        while True:
            resources = (await self._client.get(f"/apis/{kind.group}/{version}")).get("resources") or ()
            digests = [entry.get("storageVersionHash") for entry in resources if entry["name"] == kind.plural]
            if digests in ([expected], [None]):
                return
            await asyncio.sleep(POLL_S)  # the API server has no event for this

    async def _rewrite_all(self, kind: Kind, version: str) -> tuple[int, Sequence[str]]:
        """Write each object of a kind in a version, in which the API server stores it; return how many, and the failures.

        Without failures, this version becomes the only stored one of the definition. After MOST_SHOWN objects that can't be
        written for REWRITE_S seconds, the remaining ones are not tried: another mesh's webhook may refuse them all.
        """
        await self._wait_stored_in(kind, version)
        failures, expired, untried = list[str](), list[str](), list[str]()
        turns = asyncio.Semaphore(MOST_WRITES)

        async def rewrite(metadata: Mapping[str, str]) -> None:
            place = metadata.get("namespace", ""), metadata["name"]
            name = "/".join(filter(None, place))
            async with turns:
                if len(expired) >= MOST_SHOWN:
                    untried.append(f"{name}: not tried after so many failures")
                    return
                try:
                    await self._rewrite_in_time(kind, place, version)
                except NotFound:
                    return
                except _CHANGED as error:
                    expired.append(f"{name}: {error}")
                except HeadgateError as error:
                    failures.append(f"{name}: {error}")

        objects = await until_done(partial(self._list, kind), "", on=_CHANGED)
        await asyncio.gather(*map(rewrite, objects))
        failures = [*sorted(failures + expired), *sorted(untried)]
        if not failures:
            status = {"status": {"storedVersions": [version]}}
            await self._client.merge(f"{PATH}/{kind.plural}.{kind.group}/status", status)
        return len(objects), failures

    async def _list(self, kind: Kind) -> Sequence[Mapping[str, str]]:
        """List the objects of a kind; return their metadata."""
        items, query = list[Mapping[str, str]](), {"limit": str(PAGE)}
        while True:
            try:
                page = await self._client.page(path_of(kind), query, metadata_only=True)
            except Gone:  # the continue token has expired: list without pagination
                items, query = [], {}
                continue
            items += [msgspec.json.decode(raw)["metadata"] for raw in page.items or ()]
            if not page.metadata.continue_:
                return items
            query = {**query, "continue": page.metadata.continue_}

    async def _rewrite_in_time(self, kind: Kind, place: tuple[str, str], version: str) -> None:
        """Rewrite an object; retry for REWRITE_S seconds at most. Raises the last error."""
        clock = asyncio.get_running_loop().time
        end = clock() + REWRITE_S

        async def wait_after(error: Exception, seconds: float) -> None:
            if clock() + seconds > end:
                raise error
            await asyncio.sleep(seconds)

        await until_done(lambda: self._rewrite(kind, place, version), wait_after, on=_CHANGED)

    async def _rewrite(self, kind: Kind, place: tuple[str, str], version: str) -> None:
        obj = await self._client.get(path_of(kind, *place))
        if version != kind.versions[0]:
            without_status = {name: value for name, value in obj.items() if name != "status"}
            obj = as_version(without_status, kind, kind.group, version)
        await self._client.put(path_of(kind, *place, version=version), obj)


def _shown(failures: Sequence[str]) -> str:
    more = [f"and {len(failures) - MOST_SHOWN} more"] if len(failures) > MOST_SHOWN else []
    return "; ".join((*failures[:MOST_SHOWN], *more))


def _path(definition: Object) -> str:
    return f"{PATH}/{definition['metadata']['name']}"


def _storage(definition: Mapping[str, Any]) -> str:
    """Return the version in which the API server stores new objects."""
    return next(str(version["name"]) for version in definition["spec"]["versions"] if version["storage"])


def _stored_in(storage: str, versions: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [{**version, "storage": version["name"] == storage} for version in versions]


def _conversion(definition: Object) -> Mapping[str, Any]:
    """Return the conversion by a webhook without its CA bundle, which the control plane writes; empty if there is none."""
    conversion = definition["spec"].get("conversion") or {}
    if not conversion.get("webhook"):
        return {}
    webhook = conversion["webhook"]
    client = {name: value for name, value in webhook["clientConfig"].items() if name != "caBundle"}
    return {**conversion, "webhook": {**webhook, "clientConfig": client}}


def _stored_versions(definition: Object) -> Sequence[str]:
    """Return the versions in which objects may be stored, as the API server records them."""
    return list((definition.get("status") or {}).get("storedVersions") or ())


def _accepted(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the same `spec` as v1 accepts it: instead of `preserveUnknownFields`, which v1beta1 had, with schemas."""
    if not spec.get("preserveUnknownFields"):
        return spec
    any_fields = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"schema": any_fields, **version} for version in spec["versions"]]
    return {**spec, "preserveUnknownFields": False, "versions": versions}


def is_installed(definition: Object) -> bool:
    """Return whether headgate has installed a definition, or has taken it over."""
    return labels_of(definition).get(_APP) == NAME or ADOPTED in annotations_of(definition)


def _adoption(before: Object) -> str:
    """Return the content of the annotation `ADOPTED`: a text that only marks the definition if the content is too long."""
    if ADOPTED in annotations_of(before):
        return annotations_of(before)[ADOPTED]
    adoption = Adoption(labels_of(before), before["spec"])
    encoded = msgspec.json.encode(adoption).decode()
    return encoded if len(encoded) <= LONGEST_ANNOTATION else "true"


def _adopted(definition: Object) -> Adoption | None:
    """Return the content of a definition before headgate; None if the annotation does not have it."""
    try:
        return msgspec.json.decode(annotations_of(definition)[ADOPTED], type=Adoption)
    except msgspec.DecodeError:
        return None
