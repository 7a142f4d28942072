"""The outcome of a request or of an attempt, as proxies report it in the attribute `code` (`traffic_stats`)."""

from typing import NamedTuple

from headgate.envoy.upstream_tls import AUDITED

DROPPED_FLAG = "UO"
"""The response flag of a request that Envoy dropped at the limits of a cluster; only mirror clusters have limits."""
_UNCONNECTED_FLAG = "UF"
UNANSWERED_FLAGS = (_UNCONNECTED_FLAG, "UC", "UR")
"""Response flags of an attempt in which the server gave no response: no connection, a closed one, a reset stream."""
_EXHAUSTED_FLAG = "URX"
"""The response flag of a request whose last permitted attempt failed like the ones before."""
UNREACHED_FLAGS = ("UH", _EXHAUSTED_FLAG, DROPPED_FLAG, "NC")
"""Response flags of a connection that reached no server. The flag UF is not listed, because Envoy keeps it after a
successful retry."""
NO_ROUTE_FLAG = "NR"
_DISCONNECTED_FLAG = "DC"
_UNPERMITTED_FLAG = "UAEX"
"""The response flag of a request that an authorization server denied, or did not decide about (ExternalAuth)."""
FIRST_RESPONSE = 200  # a lower status means no response or an upgrade, which has no latency
FIRST_FAILURE = 500
_FORBIDDEN, _PERMISSION_DENIED = 403, "7"
DENIED_MARK, AUDITED_MARK = "t", AUDITED[0]  # the first characters of the header's values, "true" and "audit"
_MARKS = DENIED_MARK + AUDITED_MARK

INCOMPLETE_FLAGS = frozenset({"UC", "UR", "UPE", "UT", "LR", "SI", "UMSDR", "DT"})
"""Response flags of an incomplete response, unless the client disconnected (`DC`)."""
FLAGS = INCOMPLETE_FLAGS.union(
    UNANSWERED_FLAGS, UNREACHED_FLAGS, (NO_ROUTE_FLAG, _DISCONNECTED_FLAG, _UNPERMITTED_FLAG)
)
"""All response flags that users see in metrics and in `kubectl traffic tap`."""


class Code(NamedTuple):
    """The outcome of a request. `status` is 0 without a response; `flags` has Envoy's response flags. `grpc` is the gRPC status.

    `marked`: the response has the header of a denial by access rules. `audited`: the response says that access rules would
    deny the request without audit mode.
    """

    status: int
    flags: frozenset[str] = frozenset()
    marked: bool = False
    audited: bool = False
    grpc: str = ""

    @property
    def is_flagged(self) -> bool:
        """Whether headgate counts the request from `mesh.flagged`, and ignores it in `mesh.latency`."""
        return bool(self.flags) or self.status < FIRST_RESPONSE

    @property
    def is_unanswered(self) -> bool:
        """Whether `mesh.attempts` counts the last attempt too."""
        return _EXHAUSTED_FLAG in self.flags or not self.flags.isdisjoint(UNANSWERED_FLAGS)

    @property
    def is_unconnected(self) -> bool:
        """Whether an attempt found no connection to the program. Without any flag, the server's own proxy said so."""
        return _UNCONNECTED_FLAG in self.flags or self.flags.isdisjoint(UNANSWERED_FLAGS)

    @property
    def is_unsent(self) -> bool:
        """Whether the last attempt found no connection, and the client's proxy responded."""
        return _UNCONNECTED_FLAG in self.flags and (self.status >= FIRST_FAILURE or not self.status)

    @property
    def is_denied(self) -> bool:
        """Whether access rules denied the request: it has the mark of a denial, and the status of a denial."""
        return self.marked and (self.grpc == _PERMISSION_DENIED if self.grpc else self.status == _FORBIDDEN)

    @property
    def complete_status(self) -> int:
        """The status of a complete response; 0 without a response and for an incomplete one.

        A status of 500 or above is always returned: it is a failure already, and proxies send such responses in full.
        The status of an upgrade is always returned too, because an upgraded connection may end in any way.
        """
        is_answer = FIRST_RESPONSE <= self.status < FIRST_FAILURE
        return 0 if is_answer and self.flags & INCOMPLETE_FLAGS else self.status


def parse_code(text: str) -> Code:
    """Parse the attribute `code`: the status, then Envoy's response flags or `-`, as in `200-` or `503UF,URX`.

    The mark of a denial or of an audit follows, as in `403-t` or `200-a`. A server without a sidecar may send any
    other character there. The gRPC status follows after a blank, as in `200- 14`.
    """
    outcome, _, grpc = text.partition(" ")
    rest = outcome.lstrip("0123456789")
    status = int(outcome.removesuffix(rest) or 0)
    marks = rest.endswith(DENIED_MARK), rest.endswith(AUDITED_MARK)
    if not rest or rest.startswith("-"):
        return Code(status, frozenset(), *marks, grpc)
    return Code(status, frozenset(rest.rstrip(_MARKS).split(",")), *marks, grpc)
