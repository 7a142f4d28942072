"""`headgate check`: every finding on manifests, with file and line, without a cluster."""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Annotated

import typer

from headgate.cli.arguments import Manifests, Output, existing
from headgate.cli.offline import Offline, compile_files
from headgate.cli.output import NO, Format, note, print_document, stdout
from headgate.cli.workload_findings import WorkloadFinding, workload_findings
from headgate.compiler.reasons import Reason, Severity
from headgate.compiler.report import Finding
from headgate.resources.meta import Value
from headgate.store.files import Manifest

STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}

Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings too.")]


class Row(Value, frozen=True, kw_only=True):
    """One finding and where it stands; `object` is empty for mistakes that leave no object to speak of."""

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
        return f"{self.file}:{self.line}: {self.severity.value} {self.reason} {about}"


class Verdict(Value, frozen=True, kw_only=True):
    """The answer to a script."""

    objects: int
    errors: int
    warnings: int
    notes: int
    findings: tuple[Row, ...]


def check(paths: Manifests, output: Output = Format.TABLE, strict: Strict = False) -> None:
    """Find what is wrong with manifests, without running anything.

    Prints every finding as FILE:LINE: SEVERITY REASON OBJECT: FIELD: MESSAGE. Files do not say whether pods are ready,
    so a Service with a selector counts as served.
    """
    verdict = judge(compile_files(existing(paths)))
    if output is Format.TABLE:
        _print(verdict)
    else:
        print_document(verdict, output)
    if verdict.errors or (strict and verdict.warnings):
        raise typer.Exit(NO)


def judge(offline: Offline) -> Verdict:
    """Return all findings on a reading, in the order of files and lines."""
    rows = sorted({*_mistakes(offline), *_findings(offline), *_workload_findings(offline)}, key=_place)
    count = Counter(row.severity for row in rows)
    return Verdict(
        objects=len(offline.manifests.objects),
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
        console.print(row.text(), style=STYLES[row.severity] if console.is_terminal else None, soft_wrap=True)
    note(summary(verdict))


def summary(verdict: Verdict) -> str:
    """Say in a line how it went."""
    counted = (("error", verdict.errors), ("warning", verdict.warnings), ("note", verdict.notes))
    found = ", ".join(plural(number, word) for word, number in counted if number)
    return f"{found or 'nothing wrong'} in {plural(verdict.objects, 'object')}"


def plural(number: int, word: str) -> str:
    """Count a word."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
