"""The health checks of a workload that its sidecar serves for the orchestrator."""

from headgate.resources.meta import Value


class HealthCheck(Value, frozen=True, kw_only=True):
    """An HTTP health check that the orchestrator sends to a workload, without a client certificate.

    `name` is `container/kind`, such as `web/readiness`. `https` means that the application itself serves TLS; the
    sidecar does not verify the application's certificate.
    """

    name: str
    port: int
    path: str
    https: bool = False


class PortCheck(Value, frozen=True, kw_only=True):
    """A health check of a port that the sidecar makes itself, and whose last result it answers to the orchestrator.

    The check is a TCP connection. With `grpc`, it is a call of the gRPC health protocol for the service `service`.
    `name` is as in `HealthCheck`. `period` and `timeout` are in seconds.
    """

    name: str
    port: int
    grpc: bool = False
    service: str = ""
    period: int = 10
    timeout: int = 1
