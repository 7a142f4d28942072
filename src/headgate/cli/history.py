"""`headgate history`: the revisions of the mesh; `headgate history REVISION`: one revision in detail."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
import typer

from headgate.cli import completion
from headgate.cli.arguments import ApiOptions, parse_kind_and_name, with_api_options
from headgate.cli.common_options import AllNamespaces, Output, check_namespaces, namespace_option
from headgate.cli.inspect_client import InspectClient
from headgate.cli.output import Format, answer, make_table, note, print_table, stdout, usage_error
from headgate.formatting import NONE, pluralize
from headgate.history.records import RECORDED
from headgate.resources.kind import Kind
from headgate.resources.meta import Key
from headgate.resources.registry import KINDS
from headgate.resources.revisions import ChangedField, ObjectChange, Revision, RevisionList

RECORDED_KINDS = tuple(kind for kind in KINDS if (kind.group, kind.kind) in RECORDED)
_REASONS = {
    "RecordingStarted": "headgate began to record; `headgate rollback` and `explain --at` can go back to here",
    "NotRecorded": "no control plane recorded these changes when they were made",
}
_LONGEST_VALUE = 60  # characters of a value in the list of revisions

Selection = Annotated[
    str,
    typer.Argument(
        metavar="[REVISION | KIND/NAME]",
        help="The number of a revision, to show its details; or an object, to list only its changes.",
        show_default=False,
        autocompletion=completion.of_kinds(RECORDED_KINDS),
    ),
]
InNamespace = Annotated[
    str,
    namespace_option("Namespace of the objects; by default the namespace of the kubeconfig's context."),
]
Limit = Annotated[
    int, typer.Option("--limit", metavar="NUMBER", min=0, help="The number of newest revisions to list; 0 lists all.")
]


@with_api_options
def history(
    selection: Selection = "",
    *,
    namespace: InNamespace = "",
    all_namespaces: AllNamespaces = False,
    limit: Limit = 30,
    output: Output = Format.TABLE,
    api: ApiOptions,
) -> None:
    """List the revisions of the mesh: the changed objects, their writers, and what they did to requests and access.

    `headgate history REVISION` shows the changed fields of one revision. `headgate rollback REVISION` restores its objects,
    and `headgate explain --at REVISION` explains a request with the objects of that revision.
    """
    client = InspectClient.of(api)
    place = chosen_namespace(client, namespace, all_namespaces=all_namespaces)
    if selection.isdecimal():
        revision = asyncio.run(client.revision(int(selection), place))
        answer(revision, output, lambda: _show(revision))
        return
    if selection and "/" not in selection:
        raise usage_error(
            f"{selection!r} is neither the number of a revision nor KIND/NAME; write 3, or trafficsplit/website",
            option="REVISION | KIND/NAME",
        )
    query = {"newest": str(limit)}
    if selection:
        kind, name = parse_object(selection)
        query |= {"group": kind.group, "kind": kind.kind, "name": name}
    listed = asyncio.run(client.revisions(place, query))
    answer(listed, output, lambda: _list(listed, across=all_namespaces))
    if not listed.items:
        note("no revision changes such an object" if selection else "no revision changes an object of this namespace")


def parse_object(text: str) -> tuple[Kind, str]:
    """Parse KIND/NAME of a recorded kind. Raises BadParameter."""
    kind, name = parse_kind_and_name(text, RECORDED_KINDS)
    if kind not in RECORDED_KINDS:
        names = ", ".join(dict.fromkeys(recorded.names.singular for recorded in RECORDED_KINDS))
        raise usage_error(f"the history does not record {kind.plural}; it has {names}", option="KIND/NAME")
    return kind, name


def chosen_namespace(client: InspectClient, namespace: str, *, all_namespaces: bool) -> str:
    """Return the namespace that the options select; empty for all. Raises BadParameter if both options are given."""
    check_namespaces(namespace, all_namespaces=all_namespaces)
    return "" if all_namespaces else namespace or client.client.namespace


def display_name(ref: Key, *, across: bool = False) -> str:
    """Return the name of an object as commands accept it: `trafficsplit/website`; with its namespace if `across`."""
    return f"{ref.kind.lower()}/{ref.name}" + (f" in {ref.namespace}" if across and ref.namespace else "")


def _list(revisions: RevisionList, *, across: bool) -> None:
    table = make_table(("REVISION", "TIME", "BY", "CHANGE", "EFFECT"), right=("REVISION",))
    for revision in revisions.items:
        table.add_row(
            str(revision.revision),
            str(revision.record_time),
            _writers(revision),
            _changes(revision, across=across),
            _effect(revision),
        )
    if revisions.items:
        print_table(table)
    if revisions.older:
        note(f"{pluralize(revisions.older, 'older revision')} not shown; --limit 0 lists all")


def _writers(revision: Revision) -> str:
    return ", ".join(sorted({change.by for change in revision.changes if change.by})) or NONE


def _changes(revision: Revision, *, across: bool) -> str:
    if not revision.changes:
        return "recording began" if revision.reason == "RecordingStarted" else NONE
    if len(revision.changes) > 1:
        counts = Counter(change.action for change in revision.changes)
        actions = ", ".join(f"{number} {action.lower()}" for action, number in counts.items())
        first = display_name(revision.changes[0].object, across=across)
        text = f"{first} and {pluralize(len(revision.changes) - 1, 'other object')}: {actions}"
    else:
        change = revision.changes[0]
        text = f"{display_name(change.object, across=across)} {_fields_in_short(change)}"
    return f"{text} (while headgate did not record)" if revision.reason == "NotRecorded" else text


def _fields_in_short(change: ObjectChange) -> str:
    writes = f" in {change.writes} writes" if change.writes > 1 else ""
    if change.first_write_time:
        writes += f" since {change.first_write_time}"
    if change.action != "Changed" or not change.fields:
        return f"{change.action.lower()}{writes}"
    first = change.fields[0]
    text = f"{first.path} {' -> '.join(map(_short, _differing(first.before, first.after)))}"
    more = f" and {pluralize(len(change.fields) - 1, 'more field')}" if len(change.fields) > 1 else ""
    return f"{text}{more}{writes}"


def _differing(before: object, after: object) -> tuple[object, object]:
    """Return two values without the fields that are equal in both."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return before, after
    same = {name for name, value in before.items() if name in after and after[name] == value}
    left, right = ({name: value for name, value in values.items() if name not in same} for values in (before, after))
    return left, right


def _text(value: object) -> str:
    """Return a value of a field as JSON; a missing one as `nothing`."""
    return "nothing" if value is None else msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _short(value: object) -> str:
    shown = _text(value)
    return shown if len(shown) <= _LONGEST_VALUE else f"{shown[: _LONGEST_VALUE - 3]}..."


def _effect(revision: Revision) -> str:
    if not revision.effect_messages:
        return "" if revision.reason == "RecordingStarted" else "none on requests and access"
    more = f" (and {len(revision.effect_messages) - 1} more)" if len(revision.effect_messages) > 1 else ""
    return f"{revision.effect_messages[0]}{more}"


def _show(revision: Revision) -> None:
    console = stdout()
    console.print(f"Revision {revision.revision}, {revision.record_time}", style="bold", soft_wrap=True)
    for line in _details(revision):
        console.print(line, soft_wrap=True)


def _details(revision: Revision) -> Iterator[str]:
    if revision.reason in _REASONS:
        yield _REASONS[revision.reason]
    for change in revision.changes:
        writer = f" by {change.by}" if change.by else ", by an unknown client"
        writes = f", {change.writes} writes" if change.writes > 1 else ""
        time = f"from {change.first_write_time} to" if change.first_write_time else "at"
        yield ""
        yield f"{display_name(change.object, across=True)} {change.action.lower()}{writer} {time} {change.write_time}{writes}"
        if change.owner or change.file:
            place = f"{change.file}:{change.line}" if change.file else ""
            owner = f"{change.owner.kind} {change.owner.name}" if change.owner else ""
            yield f"  cause: {': '.join(text for text in (place, owner) if text)}"
        yield from _fields(change.fields)
        yield from _steps(change)
    if revision.reason != "RecordingStarted":
        yield ""
        yield "Effect on requests and access"
        yield from (f"  {line}" for line in revision.effect_messages or ("none",))


def _steps(change: ObjectChange) -> Iterator[str]:
    """Yield the combined writes of a controller with their times."""
    if change.writes > 1 and change.steps:
        count = len(change.steps)
        yield f"  writes, oldest first{f' (the newest {count} of {change.writes})' if count < change.writes else ''}"
    for step in change.steps:
        yield f"  {step.write_time}"
        yield from (f"  {line}" for line in _fields(step.fields))


def _fields(fields: Sequence[ChangedField]) -> Iterator[str]:
    for field in fields:
        if field.before is None:
            yield f"  + {field.path}: {_text(field.after)}"
        elif field.after is None:
            yield f"  - {field.path}: {_text(field.before)}"
        else:
            yield f"  {field.path}: {_text(field.before)} -> {_text(field.after)}"
