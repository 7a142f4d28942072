"""The share of requests whose trace a proxy begins, as users write it (docs/tasks/traces.md)."""

TRACE_SAMPLING = "headgate.dev/trace-sampling"
"""Annotation of a Namespace or a pod: the percentage of requests without a trace for which its sidecars begin a sampled one."""
