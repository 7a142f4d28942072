"""Events, which are only stored and shown."""

from headgate.kinds import names_of
from headgate.resources import cells
from headgate.resources.columns import NAME, Column
from headgate.resources.kind import Kind

KIND = Kind(
    names_of("Event", ""),
    columns=(
        Column("Last Seen", cell=cells.since("series.lastObservedTime", "lastTimestamp", "eventTime")),
        Column("Type", cell=cells.at("type")),
        Column("Reason", cell=cells.at("reason")),
        Column("Object", cell=cells.about),
        Column("Source", cell=cells.at("source.component", ""), wide=True),
        Column("Message", cell=cells.at("message", "")),
        Column("First Seen", cell=cells.since("firstTimestamp", "eventTime"), wide=True),
        Column("Count", cell=cells.at("count", 1), wide=True),
        NAME._replace(description="", wide=True),
    ),
    selectable=frozenset({"reason", "source", "type"})
    | {f"involvedObject.{name}" for name in ("kind", "namespace", "name", "uid", "apiVersion")}
    | {"involvedObject.resourceVersion", "involvedObject.fieldPath"},
    always_present=("involvedObject", "source"),
)
