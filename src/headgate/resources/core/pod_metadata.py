"""Checks of the mesh's labels and annotations on pods, pod templates and namespaces.

All other fields of pods are checked by admission, or by the cluster that runs them.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from headgate.errors import Cause
from headgate.option import parse_sampling
from headgate.resources.core.proxy_annotations import PROXY_ANNOTATIONS, proxy_annotation_causes
from headgate.resources.meta import Object, is_dns_subdomain, part
from headgate.resources.pod_templates import pod_template, template_path
from headgate.resources.schema.builders import LARGEST_PORT
from headgate.resources.trace_sampling import TRACE_SAMPLING

INJECT = "headgate.dev/inject"
"""Label or annotation of a pod, or label of a namespace: a value of `INJECTED` or `NOT_INJECTED`."""
INJECTED, NOT_INJECTED = ("true", "enabled"), ("false", "disabled")
"""The values with which pods get a sidecar, and the values with which they get none. `enabled` and `disabled` have the
values of Istio and Linkerd."""
SIDECAR = "headgate.dev/sidecar-mode"
"""Annotation of a pod, written by injection: the mode of its sidecar, `transparent` or `explicit`."""
SIDECARS = frozenset({"transparent", "explicit"})
APPLICATION_PORTS = "headgate.dev/application-ports"
"""Annotation of a pod with an explicit sidecar: the ports on which its process listens, `8080=20417,9090=20418`."""
STOP_PROCESS = "headgate.dev/stop-process"
"""Finalizer of each pod that one machine runs: it keeps the pod until its processes are gone."""
EXCLUDED_PORTS = "headgate.dev/excluded-inbound-ports"
"""Annotation of a pod: ports that bypass its sidecar, `9090,9102`, for example for a Prometheus outside the mesh."""
REDIRECTION = "headgate.dev/redirection"
"""Annotation of a namespace or pod on a cluster: a value of `REDIRECTIONS`. It replaces the mesh's option `--node-agent`."""
NODE_AGENT = "node-agent"
REDIRECTIONS = ("init-container", NODE_AGENT)
"""What redirects the pod's connections: a privileged init container, or the agent of the node."""
PROBES = "headgate.dev/probes"
"""Annotation of a pod, written by injection on Kubernetes: its HTTP probes as JSON, by `CONTAINER/FIELD`.

The probes in the pod's spec go to the sidecar, which forwards them to the paths and ports in this annotation.
"""
ADDED = "headgate.dev/sidecar-generations"
"""Annotation of a pod, written by injection: the Sidecars that apply to it with their generations, `monitoring@3,proxy@1`."""
CONFLICTS = "headgate.dev/sidecar-conflicts"
"""Annotation of a pod, written by injection: what a Sidecar did not add because the pod already
uses the name, `monitoring/containers/agent`."""
REVISION = "headgate.dev/rev"
"""Label of a namespace: the revision of headgate that injects sidecars into its new pods. Annotation of a pod, written by
injection: the revision that has injected its sidecar, and whose compiler configures it."""
PROCESS = "headgate.dev/process"
"""Annotation of a pod: `external` if `headgate run` starts its process instead of the local runtime."""
EXTERNAL = "external"
PROCESS_ID = "headgate.dev/process-id"
"""Annotation of a pod of `headgate run`: its process as `PID-START-BOOT` (`ProcessIdentity`).

The pod ends with the process.
"""


ANNOTATIONS_OF_PODS = frozenset(
    {
        ADDED,
        APPLICATION_PORTS,
        CONFLICTS,
        EXCLUDED_PORTS,
        INJECT,
        PROBES,
        PROCESS,
        PROCESS_ID,
        REDIRECTION,
        REVISION,
        SIDECAR,
        *PROXY_ANNOTATIONS,
    }
)
"""The annotations of pods that headgate reads or writes."""


_PORTS = re.compile(r"[0-9]{1,5}(,[0-9]{1,5})*")
_PAIRS = re.compile(r"[0-9]{1,5}=[0-9]{1,5}(,[0-9]{1,5}=[0-9]{1,5})*")
_NUMBERS = re.compile(r"[0-9]+")


def sidecar_mode(pod: Object) -> str:
    """Return the mode of a pod's sidecar, `transparent` or `explicit`; empty if it has none."""
    mode: str = part(pod["metadata"], "annotations").get(SIDECAR, "")
    return mode if mode in SIDECARS else ""


def template_causes(obj: Object) -> Iterator[Cause]:
    """Yield mistakes in the labels, annotations and ServiceAccount of a workload's pod template."""
    template, where = pod_template(obj), f"{template_path(obj)}."
    yield from pod_metadata_causes(template, where)
    yield from _misplaced(part(obj, "metadata"), part(template, "metadata"), where)


def pod_metadata_causes(pod: Mapping[str, Any], where: str) -> Iterator[Cause]:
    metadata = part(pod, "metadata")
    annotations, place = part(metadata, "annotations"), f"{where}metadata.annotations"
    yield from inject_causes(part(metadata, "labels"), f"{where}metadata.labels")
    yield from inject_causes(annotations, place)
    yield from _sidecar(annotations, place)
    yield from _numbers(annotations, EXCLUDED_PORTS, _PORTS, place)
    yield from _numbers(annotations, APPLICATION_PORTS, _PAIRS, place)
    yield from proxy_annotation_causes(annotations, place)
    yield from redirection_causes(annotations, place)
    yield from trace_sampling_causes(annotations, place)
    account = part(pod, "spec").get("serviceAccountName")
    if isinstance(account, str) and account and not is_dns_subdomain(account):
        yield Cause(f"{where}spec.serviceAccountName", f"{account!r} is not the name of a ServiceAccount")


def inject_causes(words: Mapping[str, Any], where: str) -> Iterator[Cause]:
    value = words.get(INJECT)
    if isinstance(value, str) and value not in INJECTED + NOT_INJECTED:
        hint = "; headgate has no ingress mode" if value == "ingress" else ""  # a value of linkerd.io/inject
        yield Cause(f"{where}.{INJECT}", f'must be "true", "enabled", "false" or "disabled", not {value!r}{hint}')


def _sidecar(annotations: Mapping[str, Any], where: str) -> Iterator[Cause]:
    value = annotations.get(SIDECAR)
    if isinstance(value, str) and value not in {"transparent", "explicit"}:
        message = f"must be transparent or explicit, not {value!r}; leave out the annotation: headgate writes it when the pod is created"
        yield Cause(f"{where}.{SIDECAR}", message)


def _numbers(annotations: Mapping[str, Any], name: str, form: re.Pattern[str], where: str) -> Iterator[Cause]:
    value = annotations.get(name)
    if not isinstance(value, str) or value == "":
        return
    example = "9090,9102" if form is _PORTS else "8080=20417,9090=20418"
    if not form.fullmatch(value):
        yield Cause(
            f"{where}.{name}", f"must be ports separated by commas, without spaces, such as {example}, not {value!r}"
        )
        return
    for number in _NUMBERS.findall(value):
        if not 1 <= int(number) <= LARGEST_PORT:
            yield Cause(f"{where}.{name}", f"contains port {number}; port numbers are from 1 to {LARGEST_PORT}")


def redirection_causes(annotations: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield the mistake in the annotation of a namespace or pod that chooses the redirection."""
    value = annotations.get(REDIRECTION)
    if isinstance(value, str) and value not in REDIRECTIONS:
        yield Cause(f"{where}.{REDIRECTION}", f"must be {' or '.join(REDIRECTIONS)}, not {value!r}")


def trace_sampling_causes(annotations: Mapping[str, Any], where: str) -> Iterator[Cause]:
    text = annotations.get(TRACE_SAMPLING)
    if isinstance(text, str):
        try:
            parse_sampling(text)
        except ValueError as error:
            yield Cause(f"{where}.{TRACE_SAMPLING}", str(error))


def _misplaced(own: Mapping[str, Any], pods: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield a mistake for each label or annotation of a workload that has an effect only in its pod template.

    They are valid if the template has the same keys, because tools such as kustomize add labels to both.
    """
    for field, names in (
        ("labels", (INJECT,)),
        ("annotations", (INJECT, EXCLUDED_PORTS, REDIRECTION, TRACE_SAMPLING, *PROXY_ANNOTATIONS)),
    ):
        for name in names:
            if name in part(own, field) and name not in part(pods, field):
                message = f"has no effect here; write it in {where}metadata.{field}"
                yield Cause(f"metadata.{field}.{name}", message)
