"""The resource `callrecords`: the callers at each port of a workload, and the calls that an audit would refuse."""

from msgspec import structs

from headgate.api.inspect.resource import InspectCall, InspectResource
from headgate.resources.call_records import CallRecord, CallRecordList
from headgate.resources.inspect import in_namespace
from headgate.resources.meta import since


async def _list(call: InspectCall) -> CallRecordList:
    every = call.inspector.calls()
    return structs.replace(every, items=in_namespace(every.items, call.path.namespace))


CALL_RECORDS = InspectResource(
    "callrecords",
    "CallRecord",
    CallRecord,
    list=_list,
    identity=lambda record: (
        *(record.metadata.namespace, record.metadata.name, record.port, record.protocol),
        *(record.caller, record.plaintext_caller),
    ),
    columns=(
        ("Port", "The port of the pods.", lambda record: str(record.port)),
        ("Protocol", "The protocol: HTTP or TCP.", lambda record: record.protocol),
        (
            "Caller",
            "The caller: a ServiceAccount, or a pod or address for plaintext.",
            lambda record: record.caller_name,
        ),
        ("Calls", "The number of allowed requests or connections.", lambda record: str(record.calls)),
        ("Would_Refuse", "The calls that an audit would refuse.", lambda record: str(record.would_refuse)),
        ("Last", "Time since the last call.", lambda record: since(record.last_call_time)),
    ),
)
