"""`headgate inject`: add transparent sidecars to manifests without the webhook of a cluster."""

import operator
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from headgate.admission.offline_injection import inject_manifest
from headgate.admission.sidecar_containers import SidecarOptions
from headgate.cli.arguments import PATHS, check_paths
from headgate.cli.mesh_options import IMAGE, Image, checked_image, with_mesh_options
from headgate.cli.output import note
from headgate.errors import HeadgateError
from headgate.formatting import json_text
from headgate.kubernetes.options import OPTIONS_OF_SIDECARS, sidecar_options
from headgate.manifests.files import FileProblem, read_texts
from headgate.manifests.streams import WrittenDocument, join, written_documents
from headgate.options import GivenOptions
from headgate.resources.meta import Object, part

Files = Annotated[
    list[Path],
    typer.Option(
        "-f",
        "--filename",
        metavar=PATHS,
        help="Directory or file of manifests, YAML or JSON; - reads standard input.",
        show_default=False,
    ),
]
Native = Annotated[bool, typer.Option("--native", help="Add native sidecars, for Kubernetes 1.29 and newer.")]
Output = Annotated[
    Literal["yaml", "json"], typer.Option("-o", "--output", help="Output format; json prints an object, or a List.")
]


@with_mesh_options(*OPTIONS_OF_SIDECARS)
def inject(
    filename: Files,
    *,
    image: Image = IMAGE,
    given: GivenOptions,
    native: Native = False,
    output: Output = "yaml",
) -> None:
    """Add sidecars to the pods of manifests, and print all manifests for `kubectl apply -f -`.

    The pods get what the admission webhook of a cluster adds. Pods that have a sidecar, or opt out by headgate.dev/inject,
    stay unchanged, and so do all other objects. If there is a mistake, nothing is printed.
    """
    options = sidecar_options(checked_image(image), given.mesh, native=native)
    files, unreadable = read_texts(check_paths(filename))
    documents, broken = written_documents(files)
    injections = [_Injection(injection, options) for injection in documents] if not broken else []
    if problems := [*unreadable, *broken, *(problem for injection in injections for problem in injection.problems)]:
        raise HeadgateError("\n".join(map(str, problems)))
    for text in (text for injection in injections for text in injection.notes):
        note(text)
    if output == "json":
        _print_json([injection.content for injection in injections if injection.content is not None])
    else:
        sys.stdout.write(join(injection.text for injection in injections))


class _Injection:
    """A document after injection: its content and text, its mistakes, and notes about pods that get no sidecar."""

    def __init__(self, written: WrittenDocument, options: SidecarOptions) -> None:
        self.problems: list[FileProblem] = []
        self.notes: list[str] = []
        self._written = written
        self._options = options
        before = written.document.object if written.document else None
        self.content = self._inject(before, "") if before is not None else None
        self.text = written.text if self.content is before else written.with_content(self.content)

    def _inject(self, obj: Object, where: str) -> Object:
        """Return an object, or a list with its items, after injection. `where` is the beginning of its fields' paths."""
        items = obj.get("items")
        if not str(obj.get("kind", "")).endswith("List") or not isinstance(items, list):
            return self._inject_one(obj, where)
        new = [
            self._inject(entry, f"{where}items[{index}].") if isinstance(entry, Mapping) else entry
            for index, entry in enumerate(items)
        ]
        return obj if all(map(operator.is_, new, items)) else {**obj, "items": new}

    def _inject_one(self, obj: Object, where: str) -> Object:
        injected = inject_manifest(obj, self._options)
        self.problems += [self._written.problem(f"{where}{cause.field}", cause.message) for cause in injected.causes]
        if injected.skipped:
            name = part(obj, "metadata").get("name", "")
            message = f"{obj['kind']} {name} stays unchanged: {injected.skipped}"
            self.notes.append(str(self._written.problem(f"{where}kind", message)._replace(field="")))
        return injected.object


def _print_json(contents: Sequence[Object]) -> None:
    whole = contents[0] if len(contents) == 1 else {"apiVersion": "v1", "kind": "List", "items": contents}
    sys.stdout.write(json_text(whole))
