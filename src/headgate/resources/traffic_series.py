"""Types of the inspect API for the traffic of an object over time, for its server and its clients."""

from typing import Annotated, TypeAlias

from msgspec import Meta

from headgate.resources.inspect import API_VERSION, Answer, ObjectName, Time
from headgate.resources.meta import Key

ResponseClass: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": "^([1-5]xx|grpc-[0-9]+|none|denied)$"})]
"""The class of a response: that of its status, `grpc-14` for a gRPC status, `none` without a complete response, or `denied`."""


class ResponseCount(Answer, frozen=True, kw_only=True):
    """The number of requests whose responses are of a class. `failure` is true if responses of this class count as failures."""

    response_class: ResponseClass
    count: int
    failure: bool


class TrafficPoint(Answer, frozen=True, kw_only=True):
    """The traffic between two times: the ends of the stored windows that the point has.

    `requests` includes `failures`, `denied` and `client_errors`, and `connections` includes `denied_connections`, but not
    `failed_connections`. Latencies are null without a response. `copies` of mirrors are in no other number.
    """

    start_time: Time
    end_time: Time
    requests: int = 0
    failures: int = 0
    denied: int = 0
    client_errors: int = 0
    connections: int = 0
    failed_connections: int = 0
    denied_connections: int = 0
    copies: int = 0
    failed_copies: int = 0
    p50_microseconds: int | None = None
    p90_microseconds: int | None = None
    p99_microseconds: int | None = None
    responses: tuple[ResponseCount, ...] = ()


class BackendSeries(Answer, frozen=True, kw_only=True):
    """The calls to a Service that a backend (`NAMESPACE/NAME`) answered."""

    service: str
    points: tuple[TrafficPoint, ...] = ()


class BackendWeight(Answer, frozen=True, kw_only=True):
    """The weight of a backend (`NAMESPACE/NAME`) in a TrafficSplit."""

    service: str
    weight: int


class WeightChange(Answer, frozen=True, kw_only=True):
    """The weights of a TrafficSplit since `record_time`; no backends after its deletion."""

    object: Key
    record_time: Time
    revision: int
    backends: tuple[BackendWeight, ...] = ()


class TrafficSeriesStatus(Answer, frozen=True, kw_only=True):
    """The traffic from `start_time` to `end_time`, one point for each step with counts, oldest first.

    A time without a point has no counts, which is not the same as no requests. A point has the time of its stored windows, which
    can be longer than a step. `messages` say what was not counted. Only a Service has `backends` and `weights`.
    """

    start_time: Time
    end_time: Time
    step_milliseconds: int
    points: tuple[TrafficPoint, ...] = ()
    backends: tuple[BackendSeries, ...] = ()
    weights: tuple[WeightChange, ...] = ()
    messages: tuple[str, ...] = ()


class TrafficSeries(Answer, frozen=True, kw_only=True):
    """The traffic that an object received, over time. Its name is `KIND.NAME`, such as `service.website`."""

    metadata: ObjectName
    object: Key
    status: TrafficSeriesStatus
    api_version: str = API_VERSION
    kind: str = "TrafficSeries"
