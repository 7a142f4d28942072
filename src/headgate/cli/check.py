"""`headgate check`: every finding on manifests with file and line, offline, or on the running mesh."""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.arguments import Kubeconfig, Output, State, existing
from headgate.cli.inspection import Inspection
from headgate.cli.kubeconfig import find_api
from headgate.cli.offline import Offline, compile_files
from headgate.cli.output import FINDING_STYLES, NO, Format, note, print_document, stdout
from headgate.cli.workload_findings import WorkloadFinding, workload_findings
from headgate.compiler.reasons import Reason, Severity
from headgate.compiler.report import Finding
from headgate.figures import counted
from headgate.manifests.files import Manifest
from headgate.resources.meta import Key, Value

API_VERSION_MISSING = "ApiVersionMissing"

SomeManifests = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[DIR|FILE...]", help="Manifests, YAML or JSON; - reads standard input.", show_default=False
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings too.")]


class Row(Value, frozen=True, kw_only=True):
    """One finding and where it stands; `object` is empty for mistakes that leave no object to speak of.

    A finding on the running mesh has no file.
    """

    file: str
    line: int
    column: int
    severity: Severity
    reason: str
    object: str
    field: str
    message: str

    def text(self) -> str:
        """Write it in one line, as compilers do: `FILE:LINE: ` and what is wrong."""
        about = ": ".join(part for part in (self.object, self.field, self.message) if part)
        place = f"{self.file}:{self.line}: " if self.file else ""
        return f"{place}{self.severity.value} {self.reason} {about}"


class Verdict(Value, frozen=True, kw_only=True):
    """The answer to a script."""

    objects: int
    errors: int
    warnings: int
    notes: int
    findings: tuple[Row, ...]


def check(
    paths: SomeManifests = None,
    output: Output = Format.TABLE,
    strict: Strict = False,
    state: State = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Find what is wrong with manifests, without running anything; without manifests, with the running mesh.

    Prints every finding as FILE:LINE: SEVERITY REASON OBJECT: FIELD: MESSAGE. Files do not say whether pods are ready,
    so a Service with a selector counts as served. The running mesh has no files and lines, but knows its pods and proxies.
    """
    verdict = judge(compile_files(existing(paths))) if paths else live(kubeconfig, state)
    if output is Format.TABLE:
        _print(verdict)
    else:
        print_document(verdict, output)
    if verdict.errors or (strict and verdict.warnings):
        raise typer.Exit(NO)


def live(kubeconfig: Path | None, state: Path | None) -> Verdict:
    """Return all findings on the running mesh, by object."""
    found = asyncio.run(Inspection(find_api(kubeconfig, state, os.environ)).findings())
    rows = [
        Row(
            file="",
            line=0,
            column=0,
            severity=Severity(item.severity),
            reason=item.reason,
            object=str(Key(item.object.group, item.object.kind, item.object.namespace, item.object.name)),
            field=item.field,
            message=item.message,
        )
        for item in found.items
    ]
    return _verdict(found.objects, sorted(rows, key=lambda row: (row.object, row.field, row.message)))


def judge(offline: Offline) -> Verdict:
    """Return all findings on a reading, in the order of files and lines."""
    rows = sorted(
        {*_mistakes(offline), *_unversioned(offline), *_findings(offline), *_workload_findings(offline)}, key=_place
    )
    return _verdict(len(offline.manifests.objects), rows)


def _verdict(objects: int, rows: Sequence[Row]) -> Verdict:
    count = Counter(row.severity for row in rows)
    return Verdict(
        objects=objects,
        errors=count[Severity.ERROR],
        warnings=count[Severity.WARNING],
        notes=count[Severity.NOTE],
        findings=tuple(rows),
    )


def _place(row: Row) -> tuple[str, int, int, str, str]:
    return row.file, row.line, row.column, row.field, row.message


def _mistakes(offline: Offline) -> Iterator[Row]:
    """Yield what keeps files, or parts of them, from being objects."""
    for problem in offline.manifests.problems:
        yield Row(
            file=problem.file,
            line=problem.line,
            column=problem.column,
            severity=Severity.ERROR,
            reason=Reason.INVALID.value,
            object="",
            field=problem.field,
            message=problem.message,
        )


def _unversioned(offline: Offline) -> Iterator[Row]:
    keys = {(item.file, *item.document.locate("kind")): str(item.key) for item in offline.manifests.objects}
    for warning in offline.manifests.warnings:
        yield Row(
            file=warning.file,
            line=warning.line,
            column=warning.column,
            severity=Severity.WARNING,
            reason=API_VERSION_MISSING,
            object=keys[warning.file, warning.line, warning.column],
            field=warning.field,
            message=warning.message,
        )


def _findings(offline: Offline) -> Iterator[Row]:
    manifests = {manifest.key: manifest for manifest in offline.manifests.objects}
    for finding in offline.compiled.report.findings:
        if manifest := manifests.get(finding.about):
            yield _row(manifest, finding, severity=finding.reason.severity, reason=finding.reason.value)


def _workload_findings(offline: Offline) -> Iterator[Row]:
    manifests = {manifest.key: manifest for manifest in offline.manifests.objects}
    objects = {key: manifest.object for key, manifest in manifests.items()}
    for finding in workload_findings(objects, os.environ):
        yield _row(manifests[finding.about], finding, severity=Severity.WARNING, reason=finding.reason)


def _row(manifest: Manifest, finding: Finding | WorkloadFinding, *, severity: Severity, reason: str) -> Row:
    place = manifest.problem(finding.field, finding.message)
    return Row(
        file=place.file,
        line=place.line,
        column=place.column,
        severity=severity,
        reason=reason,
        object=str(finding.about),
        field=finding.field,
        message=finding.message,
    )


def _print(verdict: Verdict) -> None:
    console = stdout()
    for row in verdict.findings:
        console.print(row.text(), style=FINDING_STYLES[row.severity] if console.is_terminal else None, soft_wrap=True)
    note(summary(verdict))


def summary(verdict: Verdict) -> str:
    """Say in a line how it went."""
    counts = (("error", verdict.errors), ("warning", verdict.warnings), ("note", verdict.notes))
    found = ", ".join(counted(number, word) for word, number in counts if number)
    return f"{found or 'nothing wrong'} in {counted(verdict.objects, 'object')}"
