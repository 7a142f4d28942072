"""The objects of the documentation in the order in which a reader applies them, and the objects that they assume."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from tests.docs.console import ROOT, Block, blocks

from headgate.resources.meta import Object

EXAMPLES = ROOT / "examples"
UP, APPLY = "headgate up ", "kubectl apply -f "
HTTP = {"name": "http", "port": 8080}
_REPORTS = re.compile("headgate reports (\\w+)")
"""In a file of the examples, the comment about a reason that headgate reports about the file's objects."""


class Manifest(NamedTuple):
    """Objects that a reader applies with one command, and the result that the page names."""

    place: str
    text: str
    rejected: str = ""
    reports: str = ""

    def objects(self) -> list[Object]:
        """Return the objects."""
        return [obj for obj in yaml.safe_load_all(self.text) if obj]


def manifests(page: Path) -> list[list[Manifest]]:
    """Return the manifests of a page, in a list for each mesh that the page starts or continues.

    YAML without `apiVersion` is a part of an object. Blocks that are not run have objects of other programs.
    """
    found = blocks(page)
    directories = tuple(f"{block.argument.split(',')[0].split()[0]}/" for block in found if block.directive == "run")
    meshes: list[list[Manifest]] = [[]]
    for block in found:
        place = f"{page.name}:{block.line}"
        if block.directive == "run":
            directory, _, more = block.argument.partition(", ")
            files = [*found, *(blocks(ROOT / more.removeprefix("with ")) if more.startswith("with ") else ())]
            meshes.append([_example(directory.split()[0]) or _directory(place, directory, files)])
        elif _has_objects(block) and not block.argument.startswith(directories):  # `run` applies a directory's files
            meshes[-1].append(Manifest(place, block.text, block.rejected, block.reports))
        for command, path in _commands(block):
            if manifest := _example(path):
                if command == UP:
                    meshes.append([])
                meshes[-1].append(manifest)
    return [mesh for mesh in meshes if len(mesh) > 1 or (mesh and not mesh[0].place.startswith("examples/"))]


def example(directory: Path) -> list[Manifest]:
    """Return the manifests of an example: its files together, and then each file of its steps."""
    steps = sorted([*directory.glob("steps/*.yaml"), *EXAMPLES.glob(f"{directory.name}-steps/*.yaml")])
    return [_joined(set(directory.rglob("*.yaml")) - set(steps)), *(_joined([step]) for step in steps)]


def without_beginnings(meshes: Mapping[str, list[Manifest]]) -> dict[str, list[Manifest]]:
    """Leave out meshes with which another one begins, by their names; of equal meshes, keep the last.

    Several pages begin with the same example, and a reader of the longer mesh applies all of the shorter one.
    """
    every = list(enumerate(meshes.values()))
    return {
        name: mesh
        for place, (name, mesh) in enumerate(meshes.items())
        if not any(other[: len(mesh)] == mesh and (len(other), number) > (len(mesh), place) for number, other in every)
    }


def _has_objects(block: Block) -> bool:
    return block.language == "yaml" and "apiVersion:" in block.text and block.directive != "not run"


def _commands(block: Block) -> Iterator[tuple[str, str]]:
    """Yield the commands of a block that apply a file or a directory, and its path."""
    for step in block.steps() if block.language == "console" and block.directive != "not run" else ():
        for start in (UP, APPLY):
            if step.command.startswith(start):
                yield start, step.command.removeprefix(start).split()[0]


def _example(path: str) -> Manifest | None:
    """Return the manifest of a file or a directory of the examples; None for another path."""
    if not path.startswith("examples/"):
        return None
    place = ROOT / path
    return _joined(place.rglob("*.yaml") if place.is_dir() else [place])


def _joined(files: Iterable[Path]) -> Manifest:
    ordered = sorted(files)
    text = "\n---\n".join(file.read_text() for file in ordered)
    return Manifest(str(ordered[0].relative_to(ROOT)), text, reports=", ".join(_REPORTS.findall(text)))


def _directory(place: str, directory: str, files: Iterable[Block]) -> Manifest:
    """Return the blocks that are written to files of a directory, as one manifest."""
    written = [
        block.text for block in files if block.directive == "file" and block.argument.startswith(f"{directory}/")
    ]
    return Manifest(place, "\n---\n".join(written))


def assumed(mesh: Iterable[Manifest], namespace: str) -> list[Object]:
    """Return the Services and pods that the objects of a mesh refer to, and that are not among them.

    `namespace` is that of objects that name none.
    """
    objects = [obj for manifest in mesh if not manifest.rejected for obj in manifest.objects()]
    services = [obj for obj in objects if obj["kind"] == "Service"]
    written = [port for service in services for port in service["spec"]["ports"] if "protocol" not in port]
    ports = {port["port"]: port for port in written} or {HTTP["port"]: HTTP}
    defined = {(namespace_of(one, namespace), one["metadata"]["name"]) for one in services}
    missing = {(namespace_of(obj, namespace), name) for obj in objects for name in _services(obj)} - defined
    made = [_service(*name, list(ports.values())) for name in sorted(missing)]
    templates = [
        (namespace_of(obj, namespace), obj["spec"]["template"]["metadata"]["labels"])
        for obj in objects
        if obj["kind"] == "Deployment"
    ]
    pods: list[Object] = []
    for obj in (*objects, *made):
        place, selector = namespace_of(obj, namespace), _selector(obj)
        if selector and not any(place == other and selector.items() <= labels.items() for other, labels in templates):
            templates.append((place, selector))
            pods.append(_pod(place, f"assumed-{len(pods)}", selector, list(ports)))
    return [*made, *pods]


def namespace_of(obj: Object, default: str) -> str:
    """Return the namespace of an object; `default` if it names none."""
    return str(obj["metadata"].get("namespace", default))


def _services(obj: Object) -> set[str]:
    """Return the names of the Services to which a split, a route or a policy for traffic refers."""
    spec: Any = obj.get("spec") or {}
    found: set[str] = set()
    if obj["kind"] == "TrafficSplit":
        found |= {one["service"] for one in (spec, *spec["backends"]) if "service" in one}
    if obj["kind"] == "XBackendTrafficPolicy":
        found |= {ref["name"] for ref in spec["targetRefs"]}
    for rule in spec.get("rules", ()) if obj["kind"] in {"HTTPRoute", "GRPCRoute"} else ():
        mirrors = [one["requestMirror"]["backendRef"] for one in rule.get("filters", ()) if "requestMirror" in one]
        found |= {ref["name"] for ref in (*rule.get("backendRefs", ()), *mirrors)}
    return found


def _selector(obj: Object) -> dict[str, str]:
    """Return the labels of the pods that an object selects; {} if it selects none."""
    spec: Any = obj.get("spec") or {}
    if obj["kind"] == "Service":
        return dict(spec.get("selector", {}))
    return dict(spec["selector"]["matchLabels"]) if obj["kind"] in {"TLSConfig", "Sidecar"} else {}


def _service(namespace: str, name: str, ports: Sequence[Object]) -> Object:
    metadata = {"name": name, "namespace": namespace}
    spec = {"selector": {"assumed": name}, "ports": list(ports)}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _pod(namespace: str, name: str, labels: dict[str, str], ports: Sequence[int]) -> Object:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    container = {"name": "app", "image": "app", "ports": [{"containerPort": port} for port in ports]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
