"""`headgate check`: all findings on manifests, with file and line, or on the running mesh."""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.arguments import PATHS, ApiOptions, with_api_options
from headgate.cli.common_options import AllNamespaces, Output, check_namespaces, namespace_option
from headgate.cli.inspect_client import InspectClient
from headgate.cli.offline import CompiledFiles, compile_files
from headgate.cli.output import EXIT_FAILURE, FINDING_STYLES, Format, answer, note, stdout, usage_error
from headgate.cli.placeholders import selector, written_pods
from headgate.compiler.reasons import Reason
from headgate.errors import DecodeError
from headgate.formatting import pluralize
from headgate.manifests import without_effect
from headgate.manifests.files import Manifest, Manifests
from headgate.resources.core.pod_spec import Container, Pod
from headgate.resources.decode import read
from headgate.resources.inspect import FindingList, Severity
from headgate.resources.mesh_status import MeshState
from headgate.resources.meta import Key, Object, Value, labels_of
from headgate.resources.pod_templates import pod_template, template_path
from headgate.resources.registry import CANARY, SERVICE, TRAFFIC_SPLIT
from headgate.standalone.processes import Launch, missing_program

API_VERSION_MISSING = "ApiVersionMissing"
NO_COMMAND = "NoCommand"  # the reason, as in the Event that `headgate up` writes for a container without a command
COMMAND_NOT_FOUND = "CommandNotFound"
VOLUME_NOT_SUPPORTED = "VolumeNotSupported"
SELECTS_NO_PODS = "SelectsNoPods"
_WITHOUT_PODS = (
    "; these files have no workloads: check them with the directory that has, or against the mesh with headgate plan -f"
)
NAMESPACE_MISSING = "NamespaceMissing"
EXISTING_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
KIND_WITHOUT_EFFECT = "KindWithoutEffect"
KIND_NOT_DEFINED = "KindNotDefined"
PODS_NOT_READY = "PodsNotReady"
STORE_NOT_WRITABLE = "StoreNotWritable"
OBJECT_DAMAGED = "ObjectDamaged"

SomeManifests = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar=f"[{PATHS}...]",
        help="Directories or files of manifests, YAML or JSON; - reads standard input.",
        show_default=False,
    ),
]
InNamespace = Annotated[
    str,
    namespace_option("Only the findings about objects of this namespace of the running mesh; by default those of all."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with code 1 also for warnings.")]


class FindingRow(Value, frozen=True, kw_only=True):
    """One finding and its position. `object` is empty when the file could not be read as an object.

    A finding on the running mesh has no file.
    """

    file: str = ""
    line: int = 0
    column: int = 0
    severity: Severity
    reason: str
    object: str
    field: str
    message: str

    def text(self) -> str:
        """Return the finding in one line, as compilers print it: `FILE:LINE: SEVERITY REASON ...`."""
        about = ": ".join(part for part in (self.object, self.field, self.message) if part)
        position = f"{self.file}:{self.line}: " if self.file else ""
        return f"{position}{self.severity.word} {self.reason} {about}"


class CheckResult(Value, frozen=True, kw_only=True):
    """All findings and their number by severity; `-o json` prints it."""

    objects: int
    errors: int
    warnings: int
    notes: int
    findings: tuple[FindingRow, ...]


@with_api_options
def check(
    paths: SomeManifests = None,
    *,
    namespace: InNamespace = "",
    all_namespaces: AllNamespaces = False,
    output: Output = Format.TABLE,
    strict: Strict = False,
    api: ApiOptions,
) -> None:
    """Check manifests without running them. Without manifests, check the running mesh.

    Every finding is a line FILE:LINE: SEVERITY REASON OBJECT: FIELD: MESSAGE. Files do not say which pods are ready, so
    `check` assumes a ready pod for each Service with a selector. Findings on the running mesh have no file and line,
    but include the state of pods and proxies.
    """
    check_namespaces(namespace, all_namespaces=all_namespaces)
    if paths and (namespace or all_namespaces):
        option = "--namespace" if namespace else "--all-namespaces"
        raise usage_error("is for the running mesh; leave it out, or the manifests", option=option)
    result = check_files(compile_files(paths)) if paths else check_mesh(api, namespace)
    answer(result, output, lambda: _print(result))
    if result.errors or (strict and result.warnings):
        raise typer.Exit(EXIT_FAILURE)


def check_mesh(api: ApiOptions, namespace: str = "") -> CheckResult:
    """Return all findings on the running mesh, or those of a namespace, sorted by object."""
    findings, mesh = asyncio.run(_read_mesh(InspectClient.of(api), namespace))
    rows = [
        FindingRow(
            severity=finding.severity,
            reason=finding.reason,
            object=str(finding.object),
            field=finding.field,
            message=finding.message,
        )
        for finding in findings.items
    ]
    rows += _state_problems(mesh, namespace)
    return _result(findings.objects, sorted(rows, key=lambda row: (row.object, row.field, row.message)))


async def _read_mesh(client: InspectClient, namespace: str) -> tuple[FindingList, MeshState]:
    return await client.findings(namespace), (await client.status()).status


def _state_problems(mesh: MeshState, namespace: str) -> Iterator[FindingRow]:
    """Yield an error for each workload whose pods are not ready, and without a namespace for each problem of the store."""
    for workload in mesh.workloads.unready if mesh.workloads else ():
        if namespace not in ("", workload.object.namespace):
            continue
        yield FindingRow(
            severity=Severity.ERROR,
            reason=PODS_NOT_READY,
            object=str(workload.object),
            field="",
            message=workload.text(),
        )
    if mesh.store and not namespace:
        faults = [(STORE_NOT_WRITABLE, message) for message in mesh.store.write_problems()]
        faults += [(OBJECT_DAMAGED, message) for message in mesh.store.damages()]
        for reason, message in faults:
            yield FindingRow(severity=Severity.ERROR, reason=reason, object="", field="", message=message)


def check_files(compiled_files: CompiledFiles) -> CheckResult:
    """Return all findings on compiled files, sorted by file and line."""
    rows = {
        *_file_problems(compiled_files),
        *_missing_versions(compiled_files),
        *_missing_namespaces(compiled_files.manifests.objects),
        *_findings(compiled_files),
        *_without_effect(compiled_files.manifests),
    }
    in_order = sorted(rows, key=lambda row: (not row.file, row.file, row.line, row.column, row.field, row.message))
    return _result(len(compiled_files.manifests.objects), in_order)


def _result(objects: int, rows: Sequence[FindingRow]) -> CheckResult:
    count = Counter(row.severity for row in rows)
    return CheckResult(
        objects=objects,
        # A severity that only a newer control plane knows may be one of errors.
        errors=len(rows) - count[Severity.WARNING] - count[Severity.NOTE],
        warnings=count[Severity.WARNING],
        notes=count[Severity.NOTE],
        findings=tuple(rows),
    )


def _file_problems(compiled_files: CompiledFiles) -> Iterator[FindingRow]:
    """Yield the errors in files that can't be read or decoded."""
    for problem in compiled_files.manifests.problems:
        yield FindingRow(severity=Severity.ERROR, reason=Reason.INVALID.value, object="", **problem._asdict())


def _missing_versions(compiled_files: CompiledFiles) -> Iterator[FindingRow]:
    keys = {
        (manifest.file, *manifest.document.locate("kind")): str(manifest.key)
        for manifest in compiled_files.manifests.objects
    }
    for warning in compiled_files.manifests.warnings:
        about = keys[warning.file, warning.line, warning.column]
        yield FindingRow(severity=Severity.WARNING, reason=API_VERSION_MISSING, object=about, **warning._asdict())


def _missing_namespaces(manifests: Sequence[Manifest]) -> Iterator[FindingRow]:
    """Yield a warning about the first object in each namespace that the files do not create."""
    existing = {
        "",
        *EXISTING_NAMESPACES,
        *(manifest.key.name for manifest in manifests if manifest.key.kind == "Namespace"),
    }
    for manifest in manifests:
        if (namespace := manifest.key.namespace) not in existing:
            existing.add(namespace)
            message = (
                f"no file creates the namespace {namespace}: `headgate up` creates it, and kubectl rejects its objects until it exists; add a Namespace, "
                f"or run `kubectl create namespace {namespace}`"
            )
            yield _row(manifest, NAMESPACE_MISSING, "metadata.namespace", message)


def _findings(compiled_files: CompiledFiles) -> Iterator[FindingRow]:
    """Yield the findings of the compiler, and those on workloads that this machine can't run."""
    manifests = {manifest.key: manifest for manifest in compiled_files.manifests.objects}
    pods = written_pods({key: manifest.object for key, manifest in manifests.items()})
    for finding in compiled_files.compiled.report.findings:
        # The compiler reports on the split of a Canary, whose fields have the same names.
        owner = (
            CANARY.key(finding.about.namespace, finding.about.name)
            if finding.about.kind == TRAFFIC_SPLIT.kind
            else None
        )
        if manifest := manifests.get(finding.about) or (manifests.get(owner) if owner else None):
            message = finding.message + (_WITHOUT_PODS if finding.reason is Reason.NO_PODS and not pods else "")
            yield _row(manifest, finding.reason.value, finding.field, message, severity=finding.reason.severity)
    for key, manifest in manifests.items():
        if (key.group, key.kind) == (SERVICE.group, SERVICE.kind):
            yield from _unmatched_selector(manifest, pods)
        elif key.kind == "Pod" or template_path(manifest.object):
            yield from _containers(manifest)


def _without_effect(manifests: Manifests) -> Iterator[FindingRow]:
    """Yield a note about all objects that are only stored, one about those that are left out, one for each ignored key and each
    object with ignored fields, and a warning for each NetworkPolicy and each kind of another mesh.
    """
    texts = (
        (KIND_WITHOUT_EFFECT, without_effect.stored_without_effect(manifests)),
        (KIND_NOT_DEFINED, without_effect.left_out(manifests)),
    )
    for reason, text in texts:
        if text:
            yield FindingRow(severity=Severity.NOTE, reason=reason, object="", field="", message=text)
    for foreign in without_effect.foreign_kinds(manifests):
        yield FindingRow(
            severity=Severity.WARNING,
            reason=KIND_WITHOUT_EFFECT,
            object="",
            file=foreign.file,
            line=foreign.position.line,
            column=foreign.position.column,
            field="",
            message=foreign.message,
        )
    for manifest, cause in without_effect.ignored_keys(manifests):
        yield _row(manifest, Reason.FIELD_IGNORED.value, cause.field, cause.message, severity=Severity.NOTE)
    for manifest, field, message in without_effect.ignored_fields(manifests):
        yield _row(manifest, Reason.FIELD_IGNORED.value, field, message, severity=Severity.NOTE)
    for manifest in manifests.objects:
        if (manifest.kind.group, manifest.kind.kind) == ("networking.k8s.io", "NetworkPolicy"):
            yield _row(manifest, KIND_WITHOUT_EFFECT, "spec", manifest.kind.without_effect)


def _unmatched_selector(service: Manifest, pods: Mapping[Key, Object]) -> Iterator[FindingRow]:
    """Yield a finding when the files have pods in the namespace of the Service, but none that matches its selector."""
    selected, namespace = selector(service.object), service.key.namespace
    labels = [labels_of(pod) for key, pod in pods.items() if key.namespace == namespace]
    if not selected or not labels or any(selected.items() <= pod_labels.items() for pod_labels in labels):
        return
    text = ",".join(f"{name}={value}" for name, value in selected.items())
    existing = sorted(
        {f"{name}={pod_labels[name]}" for pod_labels in labels for name in selected if name in pod_labels}
    )
    hint = f"; pods of this namespace have {', '.join(existing)}" if existing else ""
    message = f"no pod of these files in namespace {namespace} has the labels {text}{hint}"
    yield _row(service, SELECTS_NO_PODS, "spec.selector", message)


def _containers(manifest: Manifest) -> Iterator[FindingRow]:
    """Yield a finding for each volume and each container that this machine can't have."""
    spec, where = manifest.object.get("spec"), "spec"
    if path := template_path(manifest.object):
        spec, where = pod_template(manifest.object).get("spec"), f"{path}.spec"
    try:
        pod = read({"metadata": {}, "spec": spec or {}}, Pod)
    except DecodeError:  # the compiler has reported the invalid field of the pod
        return
    for index, volume in enumerate(pod.spec.volumes):
        if volume.fault:
            yield _row(
                manifest, VOLUME_NOT_SUPPORTED, f"{where}.volumes[{index}]", f"volume {volume.name}: {volume.fault}"
            )
    for kind, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers)):
        for index, container in enumerate(containers):
            field = f"{where}.{kind}[{index}]"
            if not container.command:
                message = (
                    f"container {container.name} has no command, and `headgate up` runs commands, not images; "
                    "set command, or run the manifest on a cluster"
                )
                yield _row(manifest, NO_COMMAND, field, message)
            elif message := _missing_program(container):
                yield _row(manifest, COMMAND_NOT_FOUND, f"{field}.command", message)


def _missing_program(container: Container) -> str:
    """Return the message for a program that this machine does not have; empty when it has the program.

    It is also empty when the program depends on a variable, a volume or the PATH of the container.
    """
    command = container.command or ("",)
    mounted = any(command[0].startswith(f"{mount.mount_path.rstrip('/')}/") for mount in container.volume_mounts or ())
    if mounted or "$(" in command[0] or any(variable.name == "PATH" for variable in container.env or ()):
        return ""
    return missing_program(Launch(command=command, env=dict(os.environ), cwd=container.working_dir))


def _row(
    manifest: Manifest, reason: str, field: str, message: str, *, severity: Severity = Severity.WARNING
) -> FindingRow:
    problem = manifest.problem(field, message)
    return FindingRow(severity=severity, reason=reason, object=str(manifest.key), **problem._asdict())


def _print(result: CheckResult) -> None:
    console = stdout()
    for row in result.findings:
        style = FINDING_STYLES.get(row.severity.word) if console.is_terminal else None
        console.print(row.text(), style=style, soft_wrap=True)
    note(summary(result))


def summary(result: CheckResult) -> str:
    """Return the number of findings in one line: `1 error, 2 warnings in 4 objects`."""
    numbers = Counter(row.severity.word for row in result.findings)
    words = dict.fromkeys((*(severity.word for severity in Severity), *numbers))
    counted = ", ".join(pluralize(numbers[word], word) for word in words if numbers[word])
    return f"{counted or 'no findings'} in {pluralize(result.objects, 'object')}"
