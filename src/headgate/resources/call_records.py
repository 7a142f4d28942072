"""Types of the inspect API for recorded calls: which workload called which, and what an audit would refuse."""

from headgate.resources.inspect import API_VERSION, Answer, ObjectName


class CallRecord(Answer, frozen=True, kw_only=True):
    """The allowed calls (requests or connections) from one caller to one port of a ServiceAccount's pods.

    `metadata` names the called ServiceAccount. `caller` is a ServiceAccount as `namespace/name`; it is empty for callers that
    prove no identity, which `plaintext_caller` names by pod or address. `port` is the pod's, 0 for ports of no Service.
    `would_refuse` are the calls that a TrafficTarget in audit mode would refuse.
    """

    metadata: ObjectName
    port: int
    protocol: str
    caller: str = ""
    plaintext_caller: str = ""
    calls: int
    first: str
    last: str
    would_refuse: int = 0

    @property
    def caller_name(self) -> str:
        """The name of the caller, with or without identity."""
        return self.caller or self.plaintext_caller


class CallRecordList(Answer, frozen=True, kw_only=True):
    """All recorded calls. `began` is when recording began.

    `incomplete` is the last time at which there were too many callers to record; it is empty if all calls are recorded.
    """

    began: str = ""
    incomplete: str = ""
    items: tuple[CallRecord, ...] = ()
    api_version: str = API_VERSION
    kind: str = "CallRecordList"
