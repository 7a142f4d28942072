"""What a rendered configuration does not carry over of the model, object by object."""

import enum
from collections.abc import Iterable
from typing import NamedTuple

from headgate.resources.meta import Key, Value


class OmissionReason(enum.Enum):
    """Why a part of an object is not carried over. The names are stable: scripts may compare them."""

    ACCESS = "Access"
    BACKEND_TLS = "BackendTLS"
    CLIENT_PROTOCOL = "ClientProtocol"
    CONSUMER_ROUTE = "ConsumerRoute"
    COPY_PROTOCOL = "CopyProtocol"
    CORS = "CORS"
    EMPTY_HEADER = "EmptyHeader"
    EXTERNAL_AUTH = "ExternalAuth"
    EXTERNAL_NAME = "ExternalName"
    FILTER = "Filter"
    HEADER = "Header"
    MATCH = "Match"
    MIRROR = "Mirror"
    MUTUAL_TLS = "MutualTLS"
    PORT_CONFLICT = "PortConflict"
    PROTOCOL = "Protocol"
    REGULAR_EXPRESSION = "RegularExpression"
    RESILIENCE = "Resilience"
    ROUNDED_SHARE = "RoundedShare"
    SERVER_NAME = "ServerName"
    SESSION = "Session"
    STICKY = "Sticky"
    TIMEOUT = "Timeout"
    UDP = "UDP"


class Omission(Value, frozen=True, kw_only=True, order=True):
    """A part of `origin` that the configuration does not carry over, or carries over differently.

    `where` names the port, the route and the backend, `what` the feature, and `message` says what happens instead.
    """

    origin: Key
    where: str
    what: str
    reason: OmissionReason
    message: str

    def __str__(self) -> str:
        """Return the omission in one line: `TrafficSplit default/web: port 8080: sticky cookie: Sticky: ...`."""
        return ": ".join(
            (str(self.origin), *filter(None, (self.where, self.what)), f"{self.reason.value} {self.message}")
        )


def in_order(omissions: Iterable[Omission]) -> tuple[Omission, ...]:
    """Return omissions without duplicates, sorted by object and place."""
    return tuple(
        sorted(
            set(omissions),
            key=lambda omission: (
                omission.origin,
                omission.where,
                omission.what,
                omission.reason.value,
                omission.message,
            ),
        )
    )


class Place(NamedTuple):
    """A place in the model: the object that defines it, and its words in messages."""

    origin: Key
    where: str


class NotExpressible(Exception):
    """A part of an object that a proxy can't express; with the fields of its Omission."""

    def __init__(self, what: str, reason: OmissionReason, message: str) -> None:
        super().__init__(message)
        self.what, self.reason, self.message = what, reason, message


class Collector:
    """Collects omissions while a configuration is rendered."""

    def __init__(self, omissions: Iterable[Omission] = ()) -> None:
        self._omissions = list(omissions)

    def add(self, place: Place, what: str, reason: OmissionReason, message: str) -> None:
        """Add an omission."""
        self._omissions.append(
            Omission(origin=place.origin, where=place.where, what=what, reason=reason, message=message)
        )

    def add_error(self, place: Place, error: NotExpressible) -> None:
        """Add the omission of a part that can't be expressed."""
        self.add(place, error.what, error.reason, error.message)

    def omissions(self) -> tuple[Omission, ...]:
        """Return all omissions without duplicates, in order."""
        return in_order(self._omissions)
