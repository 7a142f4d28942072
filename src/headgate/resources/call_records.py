"""Types of the inspect API for recorded calls: which workload called which, and what an audit would refuse."""

from typing import Literal

from headgate.resources.inspect import API_VERSION, Answer, AnswerList, ObjectName, Time

CallProtocol = Literal["HTTP", "TCP"]
"""Whether calls are requests or connections."""


class CallRecord(Answer, frozen=True, kw_only=True):
    """The allowed calls (requests or connections) from one caller to one port of a ServiceAccount's pods.

    `metadata` names the called ServiceAccount. `caller` is a ServiceAccount as `namespace/name`; it is empty for callers that
    prove no identity, which `plaintext_caller` names by pod or address. `port` is the pod's, 0 for ports of no Service.
    `would_refuse` has the calls that a TrafficTarget in audit mode would refuse.
    """

    metadata: ObjectName
    port: int
    protocol: CallProtocol
    caller: str = ""
    plaintext_caller: str = ""
    calls: int
    first_call_time: Time
    last_call_time: Time
    would_refuse: int = 0
    api_version: str = API_VERSION
    kind: str = "CallRecord"

    @property
    def caller_name(self) -> str:
        """The name of the caller, with or without identity."""
        return self.caller or self.plaintext_caller


class CallRecordList(AnswerList, frozen=True, kw_only=True):
    """All recorded calls since `recording_start_time`.

    At `last_incomplete_time`, there were too many callers to record; it is null if all calls are recorded.
    """

    recording_start_time: Time = None
    last_incomplete_time: Time = None
    items: tuple[CallRecord, ...] = ()
    kind: str = "CallRecordList"
