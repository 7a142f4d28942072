"""Read manifest files and directories: their objects, and the problems in them with line and column.

A directory is read recursively: `.yaml`, `.yml` and `.json` files in the order of their names, without hidden files and
directories. A symlink is followed to a file or directory of manifests. The path `-` is standard input. A directory that is a
kustomization or a chart generates its manifests (`generated`).
"""

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from watchfiles import Change

from headgate.errors import StoreError
from headgate.file_watch import WatchError, directory_changes
from headgate.manifests import STANDARD_INPUT
from headgate.manifests.documents import Document, Position, parse
from headgate.manifests.generated import generated, generates
from headgate.model.authorities import DEFAULT_NAMESPACE
from headgate.objects.lifecycle import with_metadata
from headgate.resources.custom.definition import with_names
from headgate.resources.custom.kinds import with_definitions
from headgate.resources.decode import check
from headgate.resources.kind import Kind
from headgate.resources.kind_set import KindSet
from headgate.resources.meta import Key, Object
from headgate.resources.registry import BUILT_IN, DEFINITION, key_of
from headgate.resources.unknown_kinds import is_foreign

SUFFIXES = frozenset({".yaml", ".yml", ".json"})
LARGEST_FILE = 5_000_000  # bytes


class FileProblem(NamedTuple):
    """A mistake in a file. `line` and `column` count from 1; `field` is empty for a problem with the whole file."""

    file: str
    line: int
    column: int
    field: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}"
        return f"{where}: {self.field}: {self.message}" if self.field else f"{where}: {self.message}"


class Manifest(NamedTuple):
    """One object of a file: in hub version, as it was written, and with the positions of its fields."""

    key: Key
    kind: Kind
    object: Object
    written: Object
    file: str
    document: Document

    def problem(self, field: str, message: str) -> FileProblem:
        """Return a problem with a field of the object, with the field's position in the file."""
        position = self.document.locate(field)
        return FileProblem(self.file, position.line, position.column, field, message)


class TextFile(NamedTuple):
    """The text of a manifest file, YAML or JSON."""

    name: str
    text: str
    is_json: bool


class LeftOut(NamedTuple):
    """An object of a kind that is neither built in nor defined by a CustomResourceDefinition. It is not stored (D34)."""

    api_version: str
    kind: str
    file: str
    position: Position


class Manifests(NamedTuple):
    """The objects of all files, and their problems.

    Objects with `warnings` are used anyway. `broken` has the files or directories with problems: their objects
    in the store should not be changed. `objects` also has the valid objects of broken files, for offline checks.
    `kinds` has the known kinds, and those that CustomResourceDefinitions in the files define. `left_out` has the objects of
    other kinds.
    """

    roots: tuple[str, ...]
    objects: tuple[Manifest, ...] = ()
    problems: tuple[FileProblem, ...] = ()
    warnings: tuple[FileProblem, ...] = ()
    broken: frozenset[str] = frozenset()
    kinds: KindSet = BUILT_IN
    left_out: tuple[LeftOut, ...] = ()


class _UnreadableError(Exception):
    """The error of a file that can't be read; its message is for the user."""


def read(
    paths: Sequence[Path],
    namespace: str = DEFAULT_NAMESPACE,
    kinds: KindSet = BUILT_IN,
    given: Iterable[TextFile] = (),
) -> Manifests:
    """Read files and directories; objects that name no namespace are put into `namespace`.

    A directory that is a kustomization or a chart stands for the manifests that it generates. Missing files and mistakes
    raise no error; they are in `problems`. `kinds` has the kinds that are known already, `given` texts that were read before.
    """
    generators = [path for path in paths if path != STANDARD_INPUT and generates(path)]
    texts, problems = read_texts([path for path in paths if path not in generators])
    for directory in generators:
        made = generated(directory)
        if made.problem:
            problems.append(_file_problem(directory, made.problem))
        else:
            texts.append(TextFile(_shown(directory), made.text, is_json=False))
    texts = [*given, *texts]
    documents: list[tuple[str, Document]] = []
    for text in texts:
        parsed, mistakes = parse(text.text, is_json=text.is_json)
        problems += [FileProblem(text.name, *mistake.position, "", mistake.message) for mistake in mistakes]
        documents += [(text.name, document) for document in parsed]
    kinds = _with_definitions(kinds, documents)
    objects: list[Manifest] = []
    left_out: list[LeftOut] = []
    for file, document in documents:
        result = _manifest(file, document, namespace, kinds)
        if isinstance(result, Manifest):
            objects.append(result)
        elif isinstance(result, LeftOut):
            left_out.append(result)
        else:
            problems += result
    problems.sort(key=lambda problem: problem.file)
    problems += _duplicates(objects)
    unique = {manifest.key: manifest for manifest in reversed(objects)}
    kept = tuple(manifest for manifest in objects if unique[manifest.key] is manifest)
    broken = frozenset(problem.file for problem in problems)
    warnings = tuple(_unversioned(manifest) for manifest in kept if manifest.document.assumed)
    return Manifests(tuple(map(str, paths)), kept, tuple(problems), warnings, broken, kinds, tuple(left_out))


def _with_definitions(kinds: KindSet, documents: Iterable[tuple[str, Document]]) -> KindSet:
    """Return the kinds, and those that valid CustomResourceDefinitions among documents define."""
    written = [document.object for _, document in documents if document.object.get("kind") == DEFINITION.kind]
    checked = [check(obj).hub for obj in written if obj.get("apiVersion") == DEFINITION.hub]
    defined = [with_names(hub) for hub in checked if hub]
    return with_definitions([*kinds.definitions, *defined]) if defined else kinds


def _files(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yield each file once, with the reason why it can't be read (empty if it can)."""
    seen: set[Path] = set()
    for path in paths:
        for file, reason in _below(path) if _is_directory(path) else [(path, "")]:
            trouble = reason if _is_text(file) else "has a name that is not UTF-8: rename it"
            real = _real(file)
            if trouble or real not in seen:
                seen.add(real)
                yield file, trouble


def _is_text(file: Path) -> bool:
    try:
        str(file).encode()
    except UnicodeEncodeError:  # Python decodes bytes that are not UTF-8 to surrogates
        return False
    return True


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # no permission; reading the path reports the reason
        return False


def _real(file: Path) -> Path:
    try:
        return file.resolve()
    except (OSError, RuntimeError):  # a symlink to itself; reading it reports the reason
        return file


def _below(root: Path) -> Iterator[tuple[Path, str]]:
    refused: list[OSError] = []
    inside = _real(root)
    walked: set[Path] = set()
    for folder, folders, names in os.walk(root, onerror=refused.append, followlinks=True):
        walked.add(_real(Path(folder)))
        # a link may lead to a directory that contains it
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and _real(Path(folder, name)) not in walked
        )
        for name in sorted(names):
            file = Path(folder, name)
            if name.startswith(".") or file.suffix not in SUFFIXES:
                continue
            real = _real(file)
            is_manifest = real.suffix in SUFFIXES or real.is_relative_to(inside) or not file.is_symlink()
            yield (
                file,
                "" if is_manifest else "is a symlink to a file that is no manifest; copy the file into the directory",
            )
    for error in refused:
        yield Path(str(error.filename)), f"can't be read: {error.strerror}"


def read_texts(paths: Sequence[Path]) -> tuple[list[TextFile], list[FileProblem]]:
    """Return the text of each file, and the files that can't be read."""
    texts: list[TextFile] = []
    problems: list[FileProblem] = []
    for file, trouble in _files(paths):
        result = _file_problem(file, trouble) if trouble else _text_file(file)
        if isinstance(result, TextFile):
            texts.append(result)
        else:
            problems.append(result)
    return texts, problems


def _text_file(file: Path) -> TextFile | FileProblem:
    try:
        text = _text(file)
    except _UnreadableError as error:
        return _file_problem(file, str(error))
    is_json = text.lstrip().startswith("{") if file == STANDARD_INPUT else file.suffix == ".json"
    return TextFile(_shown(file), text, is_json)


def _text(file: Path) -> str:
    try:
        text = _content(file).decode("utf-8-sig")
    except OSError as error:
        raise _UnreadableError(f"can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _UnreadableError(
            f"is not text (byte {error.start} is not UTF-8): manifests are YAML or JSON in UTF-8"
        ) from error
    if not text.strip():  # an editor may be writing the file
        raise _UnreadableError(
            "is empty: add an object to it; to remove the objects that it contained, delete the file"
        )
    if "\0" in text:
        raise _UnreadableError("is binary, not text: manifests are YAML or JSON in UTF-8")
    return text


def _content(file: Path) -> bytes:
    if file == STANDARD_INPUT:
        content = sys.stdin.buffer.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise _UnreadableError(f"has more than {LARGEST_FILE / 1e6:.0f} MB: split it into several files")
        return content
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise _UnreadableError("is not a regular file")
    if status.st_size > LARGEST_FILE:
        size = f"{status.st_size / 1e6:.1f} MB"
        raise _UnreadableError(
            f"has {size}; files up to {LARGEST_FILE / 1e6:.0f} MB are read: split it into several files"
        )
    return file.read_bytes()


def _file_problem(file: Path, message: str) -> FileProblem:
    return FileProblem(_shown(file), 1, 1, "", message)


def _shown(file: Path) -> str:
    """Return a path as printable text; bytes that are not UTF-8 become replacement characters."""
    if file == STANDARD_INPUT:
        return "<stdin>"
    return os.fsencode(file).decode(errors="replace")


def _manifest(file: str, document: Document, namespace: str, kinds: KindSet) -> Manifest | LeftOut | list[FileProblem]:
    """Return the object of a document, that it is left out, or the problems with it."""
    written = document.object
    if is_foreign(written, kinds):
        return LeftOut(written["apiVersion"], written["kind"], file, document.position)
    checked = check(written, kinds=kinds)
    kind = kinds.find_written(str(written.get("apiVersion")), str(written.get("kind")))
    if checked.hub is not None and kind:
        hub = with_metadata(
            checked.hub, namespace=(checked.hub["metadata"].get("namespace") or namespace) if kind.namespaced else None
        )
        if not hub["metadata"].get("name"):
            message = "is missing: an object in a file needs a name (generateName would create a new object each time)"
            position = document.locate("metadata")
            return [FileProblem(file, position.line, position.column, "metadata.name", message)]
        return Manifest(key_of(hub), kind, hub, written, file, document)
    as_if = f" (read as {document.assumed}, because apiVersion is missing)" if document.assumed else ""
    return [
        FileProblem(file, *document.locate(cause.field), cause.field, f"{cause.message}{as_if}")
        for cause in checked.causes
    ]


def _unversioned(manifest: Manifest) -> FileProblem:
    position = manifest.document.locate("kind")
    message = (
        f"is missing; the {manifest.key.kind} is read as {manifest.document.assumed}, the newest version in which it is valid. "
        "Add this apiVersion to the file: kubectl refuses an object without one"
    )
    return FileProblem(manifest.file, position.line, position.column, "apiVersion", message)


def _duplicates(objects: Iterable[Manifest]) -> Iterator[FileProblem]:
    """Yield two problems for each object that is written twice, one at each position."""
    first: dict[Key, Manifest] = {}
    for manifest in objects:
        other = first.setdefault(manifest.key, manifest)
        if other is not manifest:
            yield _duplicate(other, manifest)
            yield _duplicate(manifest, other)


def _duplicate(manifest: Manifest, other: Manifest) -> FileProblem:
    position = other.document.locate("metadata.name")
    message = f"{manifest.key} is written twice, also in {other.file}:{position.line}: keep one of them"
    return manifest.problem("metadata.name", message)


def _visible(roots: Iterable[Path]) -> Callable[[Change, str], bool]:
    """Return a filter for changes to manifest files. It ignores hidden files, such as a state directory."""
    resolved = [root.resolve() for root in roots]

    def visible(_change: Change, path: str) -> bool:
        inside = [Path(path).relative_to(root).parts for root in resolved if Path(path).is_relative_to(root)]
        parts = min(inside, key=len, default=())
        return not any(part.startswith(".") and not part.startswith("..") for part in parts)

    return visible


async def watch(
    paths: Sequence[Path],
    current_kinds: Callable[[], KindSet] = lambda: BUILT_IN,
    given: Sequence[TextFile] = (),
) -> AsyncIterator[Manifests]:
    """Yield the manifests of files and directories, then again after each change to their content.

    `current_kinds` returns the known kinds; `given` has texts that were read before. Raises StoreError if a path can't be watched.
    """
    # Editors replace a file, which ends the watch of the file itself.
    roots = [path.absolute().parent if path.is_file() else path for path in paths]
    directory = ", ".join(map(str, roots))
    last: Manifests | None = None
    try:
        async with contextlib.aclosing(directory_changes(roots, "this machine", _visible(roots))) as changes:
            async for _ in changes:
                reading = await asyncio.to_thread(read, paths, DEFAULT_NAMESPACE, current_kinds(), given)
                if reading != last:
                    last = reading
                    yield reading
    except OSError as error:
        raise StoreError(f"the directory {directory} can't be watched: {error.strerror or error}") from error
    except WatchError as error:
        raise StoreError(f"the directory {directory} can't be watched: {error}") from error
