"""The annotations of a Service about failures of its endpoints (docs/tasks/resilience.md)."""

EJECTION = "headgate.dev/outlier-detection"
RETRY = "headgate.dev/retry"
TIMEOUT = "headgate.dev/timeout"
LIMITS = "headgate.dev/limits"
ANNOTATIONS = (EJECTION, RETRY, TIMEOUT, LIMITS)
