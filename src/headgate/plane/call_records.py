"""Converts the records of calls to the objects of the inspect API."""

from headgate.model.identities import parse_id
from headgate.resources.call_records import CallRecord, CallRecordList
from headgate.resources.inspect import ObjectName
from headgate.resources.meta import timestamp
from headgate.telemetry.access_records import AccessRecord, AccessRecords, CallKey


def call_records(records: AccessRecords, now: float) -> CallRecordList:
    """Return the calls of the last 7 days; `now` is in seconds since the epoch."""
    items = (_item(key, record) for key, record in records.recent(now).items())
    return CallRecordList(
        recording_start_time=timestamp(records.began),
        last_incomplete_time=timestamp(records.lost) if records.lost else None,
        items=tuple(call for call in items if call),
    )


def _item(key: CallKey, record: AccessRecord) -> CallRecord | None:
    called, caller = parse_id(key.destination), parse_id(key.caller)
    if called is None:
        return None
    return CallRecord(
        metadata=ObjectName(namespace=called.namespace, name=called.name),
        caller=f"{caller.namespace}/{caller.name}" if caller else "",
        plaintext_caller="" if caller else key.caller,
        port=key.port,
        protocol=key.protocol,
        calls=record.count,
        first_call_time=timestamp(record.first),
        last_call_time=timestamp(record.last),
        would_refuse=record.audited,
    )
