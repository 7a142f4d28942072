"""The output of `headgate up` while it runs: text, or one JSON object per line."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from rich.text import Text

from headgate.cli.messages import Messages
from headgate.cli.output import note, stdout
from headgate.compiler.report import Finding
from headgate.manifests.apply import ApplyResult
from headgate.manifests.files import FileProblem
from headgate.model import localhost_names, routing
from headgate.plane.status.conditions import few
from headgate.resources.inspect import Severity
from headgate.standalone.app import Running
from headgate.standalone.pods.troubles import PodTrouble

MOST_SERVICES = 100  # that `ready` prints
UNCHANGED = "The objects of these files stay as they were; all other changes are applied."
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}

Resolved: TypeAlias = tuple[Finding, str]
"""A resolved finding and its recovery message.

The message is empty if the object was deleted, or if a current finding is about the same fault.
"""


class TextReporter:
    """Prints text through `messages`, which the live table displays while it fills the terminal."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages

    def starting(self) -> None:
        """Print that headgate is starting."""
        note("Starting ...")

    def stopping(self) -> None:
        """Print that headgate is stopping."""
        note("\nStopping the workloads, then Envoy ... (press Ctrl-C again to kill the workloads)")

    def problems(self, problems: Sequence[FileProblem]) -> None:
        """Print all errors in files, or that all files are valid again."""
        self._messages.problems = [*map(str, problems), *([UNCHANGED] if problems else [])]
        for text in () if self._messages.has_screen else self._messages.problems:
            self._messages.show(text)
        if not problems:
            self._messages.show("All files are valid again.")

    def warnings(self, warnings: Sequence[FileProblem]) -> None:
        """Print the warnings about files whose objects are applied nevertheless."""
        for warning in warnings:
            note(f"{warning}")

    def envoy_error(self, message: str) -> None:
        """Print an error of the gateway's Envoy."""
        self._messages.show(message)

    def envoy_restarted(self, message: str) -> None:
        """Print that the gateway's Envoy runs again."""
        self._messages.show(message)

    def waiting(self, names: Sequence[str]) -> None:
        """Print the names of the objects or processes that the start or the shutdown waits for."""
        if names:
            note(f"Waiting for {few(names)} ...")

    def pods(self, new: Sequence[PodTrouble], *, current: Sequence[PodTrouble]) -> None:
        """Print each new PodTrouble with the last lines of the pod's output; the live table shows every current one."""
        self._messages.pods = [describe_pod_trouble(trouble) for trouble in current]
        for trouble in () if self._messages.has_screen else new:
            self._messages.show(describe_pod_trouble(trouble))

    def without_effect(self, lines: Sequence[str]) -> None:
        """Print which objects of the files headgate does not carry out."""
        for text in lines:
            self._messages.show(text)

    def drift(self, differences: Sequence[str]) -> None:
        """Print the differences between the files and the stored objects at the start, and which version applies."""
        for text in differences:
            note(text)

    def applied(self, applied: ApplyResult) -> None:
        """Print a line for each object that an edit of the files changed."""
        for keys, word in ((applied.created, "created"), (applied.changed, "changed"), (applied.removed, "removed")):
            for key in keys:
                self._messages.show(f"{key} {word}")

    def ready(self, current: Running, missing: Sequence[str], dashboard_url: str) -> None:
        """Print how to reach the API and all Services, the Deployments that are not available, and the findings."""
        console = stdout()
        console.print(Text("headgate is up.", style="bold green"))
        if missing:
            note(f"Not available yet: {few(missing)}; see `kubectl describe pods`.")
        self._messages.heading = (
            f"  kubectl     source {env_file(current)}",
            f"  HTTP proxy  export {proxy_variables(current.info.proxy)}",
            f"  browser     {localhost_names.url('SERVICE.NAMESPACE.localhost', current.info.localhost_port)}",
            f"  dashboard   {dashboard_url}",
        )
        for line in self._messages.heading:
            console.print(line, soft_wrap=True)
        if current.info.metrics:
            console.print(f"  metrics     {current.info.metrics}", soft_wrap=True)
        protocols, services = current.live_state.protocols(), current.live_state.services()
        urls = _urls(current)
        if not services:
            hint = "  There is no Service yet: add manifests to the directory, or apply them with kubectl."
            console.print(hint, soft_wrap=True)
        for service, ports in islice(services.items(), MOST_SERVICES):
            addresses = (service_address(address, protocols[service][port]) for port, address in ports.items())
            where = ", ".join((*urls.get(service, {}).values(), *addresses))
            console.print(f"  {service:<40} {where or 'through the HTTP proxy'}", soft_wrap=True)
        if (further := len(services) - MOST_SERVICES) > 0:
            console.print(f"  and {further} more: kubectl get services --all-namespaces", soft_wrap=True)
        for gateway, ports in current.live_state.gateways().items():
            console.print(f"  {'gateway ' + gateway:<40} {', '.join(ports.values())}", soft_wrap=True)
        for finding in current.live_state.findings():
            _print_finding(finding)

    def change(self, revision: int, *, new: Sequence[Finding], resolved: Sequence[Resolved]) -> None:  # noqa: ARG002  # only JsonReporter prints the revision
        """Print the new findings, and the recovery messages of resolved ones."""
        for finding in () if self._messages.has_screen else new:  # the live table shows all current findings
            _print_finding(finding)
        for finding, message in resolved:
            if message and self._messages.has_screen:
                self._messages.show(f"{finding.about}: {message}")
            elif message:
                stdout().print(Text(f"{finding.about}: {message}", style="green"), soft_wrap=True)


class JsonReporter:
    """Prints each event as a JSON object in a line on stdout."""

    def starting(self) -> None:
        """Print nothing; scripts wait for the ready line."""

    def stopping(self) -> None:
        """Print that headgate is stopping."""
        _write_line({"stopping": True})

    def problems(self, problems: Sequence[FileProblem]) -> None:
        """Print the problems; the list is empty when all are fixed."""
        _write_line({"problems": [problem._asdict() for problem in problems]})

    def warnings(self, warnings: Sequence[FileProblem]) -> None:
        """Print the warnings."""
        _write_line({"warnings": [warning._asdict() for warning in warnings]})

    def envoy_error(self, message: str) -> None:
        """Print an error of the gateway's Envoy."""
        _write_line({"trouble": message})

    def envoy_restarted(self, message: str) -> None:
        """Print that the gateway's Envoy runs again."""
        _write_line({"recovered": message})

    def waiting(self, names: Sequence[str]) -> None:
        """Print the names of the objects or processes that the start or the shutdown waits for."""
        _write_line({"waiting": names})

    def pods(self, new: Sequence[PodTrouble], *, current: Sequence[PodTrouble]) -> None:  # noqa: ARG002  # the parameters of TextReporter.pods
        """Print a line for each new PodTrouble."""
        for trouble in new:
            _write_line({"pod": _pod_trouble_fields(trouble)})

    def without_effect(self, lines: Sequence[str]) -> None:
        """Print which objects of the files headgate does not carry out."""
        _write_line({"withoutEffect": lines})

    def drift(self, differences: Sequence[str]) -> None:
        """Print the differences between the files and the stored objects at the start."""
        _write_line({"drift": differences})

    def applied(self, applied: ApplyResult) -> None:
        """Print the names of the objects that an edit of the files changed."""
        changed = {
            "created": [str(key) for key in applied.created],
            "changed": [str(key) for key in applied.changed],
            "removed": [str(key) for key in applied.removed],
        }
        if any(changed.values()):
            _write_line({"applied": changed})

    def ready(self, current: Running, missing: Sequence[str], dashboard_url: str) -> None:
        """Print the ready line: addresses, Services, findings, and Deployments that are not available."""
        _write_line(
            {
                "ready": True,
                "kubeconfig": current.info.kubeconfig,
                "proxy": current.info.proxy,
                "metrics": current.info.metrics,
                "dashboard": dashboard_url,
                "localhostPort": current.info.localhost_port,
                "services": current.live_state.services(),
                "urls": _urls(current),
                "protocols": current.live_state.protocols(),
                "gateways": current.live_state.gateways(),
                "findings": [_finding_fields(finding) for finding in current.live_state.findings()],
                "unavailable": missing,
            }
        )

    def change(self, revision: int, *, new: Sequence[Finding], resolved: Sequence[Resolved]) -> None:
        """Print the active revision, the new findings and the resolved ones."""
        fields = [_finding_fields(finding) for finding, _ in resolved]
        _write_line({"revision": revision, "findings": [*map(_finding_fields, new)], "resolved": fields})


Reporter: TypeAlias = TextReporter | JsonReporter


def env_file(current: Running) -> str:
    """Return the shell-quoted path of `env`, the file to source; it is relative if it is below the working directory."""
    path = Path(current.info.kubeconfig).with_name("env")
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def describe_pod_trouble(trouble: PodTrouble) -> str:
    """Return why a pod is not ready, followed by the last lines of its output."""
    pod, logs = trouble.pod, f"kubectl logs -n {trouble.pod.namespace} {trouble.pod.name}"
    first = f"{pod}: {trouble.reason}: {trouble.message}"
    return "\n".join(
        [first, f"  the last lines of its logs ({logs}):", *(f"    {line}" for line in trouble.output)][
            : None if trouble.output else 1
        ]
    )


def _pod_trouble_fields(trouble: PodTrouble) -> Mapping[str, Any]:
    return {
        "namespace": trouble.pod.namespace,
        "name": trouble.pod.name,
        "container": trouble.container,
        "reason": trouble.reason,
        "message": trouble.message,
        "exitCode": trouble.exit_code,
        "output": trouble.output,
    }


def proxy_variables(proxy: str) -> str:
    """Return the variables of a shell whose programs use the HTTP proxy at `host:port`, but not for names below `.localhost`."""
    return f"http_proxy=http://{proxy} no_proxy=.{localhost_names.LOCALHOST}"


def _urls(current: Running) -> Mapping[str, Mapping[str, str]]:
    """Return the URLs of each Service for browsers of this machine, by port: `{"default/website": {"80": "http://website.localhost:18080"}}`."""
    port = current.info.localhost_port
    names = current.live_state.localhost_names()
    return {
        service: {str(named.port): localhost_names.url(named.host, port) for named in of_service}
        for service, of_service in names.items()
    }


def service_address(address: str, protocol: str) -> str:
    """Return the address of a Service port for clients: a URL, or `HOST:PORT (PROTOCOL)`."""
    return f"http://{address}" if routing.Protocol(protocol).is_http else f"{address} ({protocol})"


def _finding_fields(finding: Finding) -> Mapping[str, Any]:
    return {
        "about": {"kind": finding.about.kind, "namespace": finding.about.namespace, "name": finding.about.name},
        "severity": finding.reason.severity.value,
        "reason": finding.reason.value,
        "field": finding.field,
        "message": finding.message,
    }


def _write_line(value: Mapping[str, Any]) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def _print_finding(finding: Finding) -> None:
    where = f"{finding.about}: {finding.field}: " if finding.field else f"{finding.about}: "
    text = Text.assemble((finding.reason.value, _STYLES[finding.reason.severity]), f" {where}{finding.message}")
    stdout().print(text, soft_wrap=True)
