"""Answers about the history of the mesh: its revisions, the way back to one, and the route of a request in it."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headgate.compiler.explain_request import explain_request
from headgate.errors import HeadgateError, NotFound
from headgate.history.differences import differences
from headgate.history.records import object_in
from headgate.history.restoration import Restoration, restorations
from headgate.history.revisions import Contents, Log, RecordedChange, RecordedRevision
from headgate.plane.live_state import LiveState
from headgate.plane.past import snapshot_at
from headgate.resources import revisions as answers
from headgate.resources.explanations import ExplanationStatus
from headgate.resources.inspect import ObjectName
from headgate.resources.meta import Key
from headgate.resources.request_spec import RequestSpec


class RevisionQuery(NamedTuple):
    """Selects revisions with changes in a namespace, and of one object; empty fields select all.

    `newest` is the highest number of revisions, 0 for all.
    """

    namespace: str = ""
    group: str = ""
    kind: str = ""
    name: str = ""
    newest: int = 0

    def selects(self, key: Key) -> bool:
        """Return whether the query selects the changes to an object."""
        return (
            self.namespace in ("", key.namespace)
            and (not self.kind or (self.group, self.kind) == (key.group, key.kind))
            and self.name in ("", key.name)
        )


def revisions(live_state: LiveState, query: RevisionQuery) -> answers.RevisionList:
    """Return the revisions with selected changes, oldest first, and those without changes to objects."""
    selected = []
    for revision, before in _log(live_state).steps():
        changes = [change for change in revision.changes if query.selects(change.key)]
        if changes or (not revision.changes and not query.kind):
            selected.append((revision, changes, before))
    shown = selected[-query.newest :] if query.newest else selected
    return answers.RevisionList(items=tuple(_answer(*step) for step in shown), older=len(selected) - len(shown))


def revision(live_state: LiveState, number: int, namespace: str) -> answers.Revision:
    """Return one revision with its changes in a namespace, or in all. Raises NotFound."""
    log = _log(live_state)
    for recorded, before in log.steps():
        changes = [change for change in recorded.changes if namespace in ("", change.key.namespace)]
        if recorded.number == number and (changes or not recorded.changes):
            return _answer(recorded, changes, before)
        if recorded.number == number:
            raise NotFound(f"revision {number} changed no object in namespace {namespace}; -A shows all namespaces")
    raise _unknown(log, number)


def restoration(live_state: LiveState, number: int, namespace: str) -> answers.RevisionRestoration:
    """Return the writes that restore the objects of a revision in a namespace, or in all. Raises NotFound."""
    log = _log(live_state)
    past = _at(log, number)
    present = {key: record.content for key, record in live_state.feed.records.items()}
    chosen = [
        {key: content for key, content in contents.items() if namespace in ("", key.namespace)}
        for contents in (present, past)
    ]
    restored = next(revision for revision in log.revisions if revision.number == number)
    return answers.RevisionRestoration(
        metadata=ObjectName(name=str(number), namespace=namespace),
        record_time=restored.time,
        steps=tuple(map(_step, restorations(*chosen))),
    )


async def explain_at(
    live_state: LiveState, sent: RequestSpec, number: int, localhost_port: int = 0
) -> ExplanationStatus:
    """Explain a request with the recorded objects of a revision and the current pods. Raises BadRequest, NotFound.

    `localhost_port` is that of `explain_request`.
    """
    past = snapshot_at(live_state, _at(_log(live_state), number))
    on_cluster = live_state.loop.settings.gateway_pods
    return explain_request(await live_state.preview(past), past, sent, localhost_port, on_cluster=on_cluster)


def _log(live_state: LiveState) -> Log:
    log = live_state.history.get()
    if log is None:
        raise HeadgateError("the history is not loaded yet; try again in a second")
    return log


def _at(log: Log, number: int) -> Contents:
    contents = log.at(number)
    if contents is None:
        raise _unknown(log, number)
    return contents


def _unknown(log: Log, number: int) -> NotFound:
    numbers = [revision.number for revision in log.revisions]
    return NotFound(f"revision {number} not found; the history has revisions {numbers[0]} to {numbers[-1]}")


def _answer(revision: RecordedRevision, changes: list[RecordedChange], before: Contents) -> answers.Revision:
    return answers.Revision(
        metadata=ObjectName(name=str(revision.number)),
        revision=revision.number,
        record_time=revision.time,
        reason=revision.reason,
        changes=tuple(_change(change, before.get(change.key)) for change in changes),
        effect_messages=revision.effect,
    )


def _change(change: RecordedChange, before: bytes | None) -> answers.ObjectChange:
    action: answers.Action = "Changed"
    if before == change.content:
        action = "Unchanged"
    elif before is None:
        action = "Created"
    elif change.content is None:
        action = "Deleted"
    kind, _, name = change.owner.partition(" ")
    return answers.ObjectChange(
        object=change.key,
        action=action,
        by=change.by,
        write_time=change.time or None,
        first_write_time=change.first_time or None,
        writes=change.writes,
        steps=tuple(_writes(change, before)),
        owner=answers.ChangeOwner(kind=kind, name=name) if name else None,
        file=change.position.rpartition(":")[0],
        line=int(change.position.rpartition(":")[2] or 0),
        fields=differences(before, change.content),
    )


def _writes(change: RecordedChange, before: bytes | None) -> Iterator[answers.ObjectWrite]:
    """Yield the kept writes of a combined change whose fields are known: those after a kept write or the first one."""
    if change.writes == 1:
        return
    writes = change.every_write
    if len(writes) < change.writes:
        before, writes = writes[0].content, writes[1:]
    for write in writes:
        yield answers.ObjectWrite(write_time=write.time, by=write.by, fields=differences(before, write.content))
        before = write.content


def _step(step: Restoration) -> answers.RestorationStep:
    return answers.RestorationStep(
        verb=step.verb,
        object=step.key,
        present=_object(step.present),
        wanted=_object(step.wanted),
        skip_message=step.skipped,
    )


def _object(content: bytes | None) -> Mapping[str, object] | None:
    return None if content is None else object_in(content)
