"""The objects at an earlier revision: the recorded objects as they were, with the current other objects."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import structs

from headgate.compiler.snapshot import Snapshot
from headgate.history.records import object_in
from headgate.history.revisions import Contents
from headgate.plane.feed import with_objects
from headgate.plane.live_state import LiveState
from headgate.resources.meta import Key, Object, Resource
from headgate.shared_map import SharedMap


def snapshot_at(live_state: LiveState, contents: Contents) -> Snapshot:
    """Return the current snapshot with the recorded objects as in `contents`.

    Pods, EndpointSlices, Namespaces and Secrets are the current ones. A recorded object that exists now keeps its status,
    such as the address of a Gateway.
    """
    live, records = live_state.feed.snapshot.get() or Snapshot(), live_state.feed.records
    past: dict[Key, Object | None] = {
        key: object_in(content)
        for key, content in contents.items()
        if key not in records or records[key].content != content
    }
    past |= {key: None for key in records if key not in contents}
    snapshot = with_objects(live, past)
    statuses = {
        key: _with_status(snapshot.objects[key], live.objects[key])
        for key in past
        if key in snapshot.objects and key in live.objects
    }
    return Snapshot(
        live.revision,
        SharedMap(snapshot.objects).edited(statuses),
        snapshot.mistakes,
        fail_closed=snapshot.fail_closed,
    )


def _with_status(past: Resource, live: Resource) -> Resource:
    fields: Mapping[str, Any] = msgspec.structs.asdict(live)
    return structs.replace(past, status=fields["status"]) if "status" in fields and type(past) is type(live) else past
