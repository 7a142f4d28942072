"""`headgate rollback`: restore the objects of an earlier revision."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

import typer

from headgate.cli.arguments import ApiOptions, with_api_options
from headgate.cli.common_options import AllNamespaces
from headgate.cli.history import InNamespace, chosen_namespace, display_name, parse_object
from headgate.cli.inspect_client import InspectClient
from headgate.cli.output import note, stdout, yaml_text
from headgate.errors import Conflict, HeadgateError, NotFound
from headgate.history.records import content_of
from headgate.history.restoration import manifest
from headgate.kubernetes.client import Client, path_of
from headgate.resources.kind import Kind
from headgate.resources.meta import Key, Object
from headgate.resources.registry import find
from headgate.resources.revisions import RestorationStep, RevisionRestoration

MANAGER = "headgate-rollback"
"""The field manager of the writes, which the history names as their writer."""
_DONE = {"create": "created", "update": "restored", "delete": "deleted"}

RevisionArgument = Annotated[
    int, typer.Argument(metavar="REVISION", min=1, help="The number of the revision to restore.")
]
Objects = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KIND/NAME...]", help="Restore only these objects.", show_default=False),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the manifests that would be applied; write nothing.")]


class RollbackStep(NamedTuple):
    """A step of the rollback with the stored object, which is None if it is created."""

    step: RestorationStep
    stored: Object | None

    @property
    def kind(self) -> Kind:
        """The kind of the object."""
        return kind_of(self.step.object)

    @property
    def name(self) -> str:
        """The name of the object for users."""
        return display_name(self.step.object)


@with_api_options
def rollback(
    revision: RevisionArgument,
    objects: Objects = None,
    *,
    dry_run: DryRun = False,
    namespace: InNamespace = "",
    all_namespaces: AllNamespaces = False,
    api: ApiOptions,
) -> None:
    """Restore the objects of a namespace as they were at a revision: change, create and delete them.

    Objects of a controller, such as the TrafficSplit of a Canary, are left out. All writes are first checked by the API
    server without an effect, so nothing is written if one of them is refused. The rollback becomes a new revision.
    """
    chosen = [parse_object(text) for text in objects or ()]
    client = InspectClient.of(api, changes=not dry_run)
    place = chosen_namespace(client, namespace, all_namespaces=all_namespaces)
    restoration = asyncio.run(client.restoration(revision, place))
    steps = [step for step in restoration.steps if not chosen or (kind_of(step.object), step.object.name) in chosen]
    for step in steps:
        if step.skip_message:
            note(f"{display_name(step.object, across=all_namespaces)} is left as it is: {step.skip_message}")
    due = [step for step in steps if not step.skip_message]
    if not due:
        note(f"nothing to restore: {'these' if chosen else 'the'} objects are as at revision {revision}")
    elif dry_run:
        stdout().print("---\n".join(_documents(restoration, due)), end="", soft_wrap=True)
    else:
        for line in asyncio.run(_apply(client.client, due)):
            stdout().print(line, soft_wrap=True)


def kind_of(ref: Key) -> Kind:
    """Return the kind of an object in the history."""
    kind = find(ref.group, ref.kind)
    if kind is None:
        raise HeadgateError(f"this headgate does not know the kind {ref.kind} of group {ref.group}; update it")
    return kind


def _documents(restoration: RevisionRestoration, steps: Sequence[RestorationStep]) -> Iterator[str]:
    """Yield the manifests of a dry run as YAML, and the deletions as comments."""
    yield f"# The objects of revision {restoration.metadata.name}, {restoration.record_time}\n"
    for step in steps:
        if step.wanted is None:
            yield f"# kubectl delete {kind_of(step.object).names.singular} -n {step.object.namespace} {step.object.name}\n"
        else:
            yield yaml_text(manifest(content_of(step.wanted)))


async def _apply(client: Client, steps: Sequence[RestorationStep]) -> list[str]:
    """Write all steps, after the API server has checked each of them. Raises HeadgateError that names what was written."""
    async with client:
        writes = [RollbackStep(step, await _stored(client, step)) for step in steps]
        for write in writes:
            try:
                await _write(client, write, dry_run=True)
            except HeadgateError as error:
                raise HeadgateError(f"{write.name}: {error}; nothing was written") from error
        done: list[str] = []
        for number, write in enumerate(writes):
            try:
                await _write(client, write, dry_run=False)
            except HeadgateError as error:
                left = ", ".join(remaining.name for remaining in writes[number:])
                raise HeadgateError(
                    f"{write.name}: {error}; written before: {', '.join(done) or 'nothing'}; not written: {left}"
                ) from error
            done.append(f"{write.name} {_DONE[write.step.verb]}")
    return done


async def _stored(client: Client, step: RestorationStep) -> Object | None:
    """Return the stored object, None if there is none. Raises Conflict if it differs from the one in the step."""
    kind, ref = kind_of(step.object), step.object
    try:
        stored: Object | None = await client.get(path_of(kind, ref.namespace, ref.name))
    except NotFound:
        stored = None
    if (content_of(stored) if stored else None) != (content_of(step.present) if step.present else None):
        raise Conflict(f"{display_name(ref)} has changed in the meantime; nothing was written, run the command again")
    return stored


async def _write(client: Client, write: RollbackStep, *, dry_run: bool) -> None:
    kind, ref, stored = write.kind, write.step.object, write.stored
    query: Mapping[str, str] = {"fieldManager": MANAGER, **({"dryRun": "All"} if dry_run else {})}
    content = content_of(write.step.wanted) if write.step.wanted else b""
    if stored is None:
        await client.post(path_of(kind, ref.namespace), manifest(content), **query)
    elif content:
        await client.put(path_of(kind, ref.namespace, ref.name), manifest(content, stored), **query)
    else:
        only = {name: stored["metadata"][name] for name in ("uid", "resourceVersion")}
        options = {"preconditions": only, **({"dryRun": ["All"]} if dry_run else {})}
        await client.remove(path_of(kind, ref.namespace, ref.name), options)
