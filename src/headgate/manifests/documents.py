"""Parse the text of a manifest file to objects, with the line and column of every field.

YAML is read as Kubernetes reads it (go-yaml): `yes` is true, a date is text, keys are text. Documents are built from the
parser's nodes, so that a mistake in `spec.backends[1].weight` is reported with its line.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import yaml

from headgate.resources.decode import with_api_version
from headgate.resources.versions import with_metadata_name

MARKER = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_NOT_A_LINE_END = re.compile(r"[^\n]")
_DEEPEST = 100  # most levels of nesting; manifests usually have about ten
_MOST_COPIES = 10_000  # most values that aliases may add, against alias bombs
_TAG = "tag:yaml.org,2002:"
TAB = "a tab indents this line; YAML allows spaces only, so replace the tab by spaces"
_BOOLEANS = {"yes": True, "on": True, "true": True, "no": False, "off": False, "false": False}
_WHOLE = re.compile(r"[-+]?(0b[01][01_]*|0x[0-9a-fA-F][0-9a-fA-F_]*|[0-9][0-9_]{0,99})")


class Position(NamedTuple):
    """A position in a file, counted from 1."""

    line: int
    column: int


class ParseProblem(NamedTuple):
    """A mistake in the syntax of a file, with its position."""

    position: Position
    message: str


class Document(NamedTuple):
    """One object; `positions` maps the path of each field (`spec.backends[0].weight`) to its position.

    `assumed` is the apiVersion that headgate assumes if the file has none (D27).
    """

    object: Any
    position: Position
    positions: Mapping[str, Position]
    assumed: str = ""

    def locate(self, field: str) -> Position:
        """Return the position of a field, or of the nearest field that contains it."""
        while field and field not in self.positions:
            field = field[: max(field.rfind("."), field.rfind("["), 0)]
        return self.positions.get(field, self.position)


class _Scalar(NamedTuple):
    position: Position
    tag: str
    text: str


class _Sequence(NamedTuple):
    position: Position
    items: "list[_Node]"


class _Mapping(NamedTuple):
    position: Position
    pairs: "list[tuple[_Node, _Node]]"


_Node: TypeAlias = _Scalar | _Sequence | _Mapping


class _ParseError(Exception):
    def __init__(self, position: Position, message: str) -> None:
        super().__init__(message)
        self.parse_problem = ParseProblem(position, message)


def parse(text: str, *, is_json: bool = False) -> tuple[list[Document], list[ParseProblem]]:
    """Return the objects of a file, with lists expanded to their items, and the syntax mistakes in it."""
    documents: list[Document] = []
    parse_problems: list[ParseProblem] = []
    written, broken = parse_written(text, is_json=is_json)
    for document in written:
        objects, wrong = _objects_in(document)
        documents += objects
        parse_problems += wrong
    return documents, [*parse_problems, *broken]


def parse_written(text: str, *, is_json: bool = False) -> tuple[list[Document], list[ParseProblem]]:
    """Return the documents of a file as they are written, up to the first syntax mistake, and this mistake."""
    documents: list[Document] = []
    try:
        for document in _json_parts(text) if is_json else _yaml(text):
            documents.append(document)  # noqa: PERF402 - the documents before a mistake are kept
    except _ParseError as error:
        return documents, [error.parse_problem]
    return documents, []


def _objects_in(document: Document) -> tuple[list[Document], list[ParseProblem]]:
    """Return the objects of a document: one object, or the items of a `kind: List`."""
    content = document.object
    if not isinstance(content, Mapping):
        return [], [ParseProblem(document.position, "is not an object; write apiVersion, kind and metadata")]
    items = content.get("items")
    if not str(content.get("kind", "")).endswith("List") or not isinstance(items, list):
        return [_with_metadata(_with_version(document))], []
    objects: list[Document] = []
    parse_problems: list[ParseProblem] = []
    positions = _by_item(document.positions)
    for index, entry in enumerate(items):
        prefix = f"items[{index}]"
        more, wrong = _objects_in(Document(entry, document.locate(prefix), positions[prefix]))
        objects += more
        parse_problems += wrong
    return objects, parse_problems


def _by_item(positions: Mapping[str, Position]) -> Mapping[str, dict[str, Position]]:
    """Group the positions of a list's fields by item: `items[0].kind` becomes `kind` of `items[0]`."""
    by_item: dict[str, dict[str, Position]] = defaultdict(dict)
    for path, position in positions.items():
        place, _, field = path.partition(".")
        if field:
            by_item[place][field] = position
    return by_item


def _with_version(document: Document) -> Document:
    obj = with_api_version(document.object)
    return document if obj is document.object else document._replace(object=obj, assumed=obj["apiVersion"])


def _with_metadata(document: Document) -> Document:
    """Return the document with the top-level `name` of early SMI versions moved to `metadata.name` (R72)."""
    named = with_metadata_name(document.object)
    if named is document.object:
        return document
    position = document.locate("name")
    return document._replace(
        object=named, positions={"metadata": position, **document.positions, "metadata.name": position}
    )


class DocumentText(NamedTuple):
    """A document of a JSON text: `before` is the text before it, and `is_json` is False for YAML after a `---`."""

    before: str
    text: str
    is_json: bool


def json_parts(text: str) -> Iterator[DocumentText]:
    """Yield the documents of a text that begins with JSON, as kubectl reads them.

    JSON objects follow each other with or without `---` between them, and after a `---` a document may be YAML.
    """
    starts = [0, *(marker.end() for marker in MARKER.finditer(text))]
    ends = [*(marker.start() for marker in MARKER.finditer(text)), len(text)]
    for start, end in zip(starts, ends, strict=True):
        content = text[start:end].lstrip()
        while content:
            at = end - len(content)
            is_json = at == len(text) - len(text.lstrip()) or content.startswith("{")
            size = _json_size(content) if is_json else len(content)
            yield DocumentText(text[:at], content[:size].rstrip(), is_json)
            content = content[size:].lstrip()


def _json_size(content: str) -> int:
    """Return the length of the first object of a text; that of the whole text if it is not JSON, or if other text follows."""
    try:
        _, size = json.JSONDecoder().raw_decode(content)
    except (ValueError, RecursionError):
        return len(content)
    return size if content[size:].lstrip().startswith("{") else len(content)


def _json_parts(text: str) -> Iterator[Document]:
    for part in json_parts(text) if text.strip() else (DocumentText("", text, is_json=True),):
        # spaces instead of the text before it: so that positions are those in the whole text
        shifted = _NOT_A_LINE_END.sub(" ", part.before) + part.text
        yield from _json(shifted) if part.is_json else _yaml(shifted)


def _json(text: str) -> Iterator[Document]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content: dict[str, Any] = {}
        for name, value in pairs:
            if name in content:
                raise ValueError(f"key {name!r} is written twice in one object")
            content[name] = value
        return content

    def finite(word: str) -> float:
        raise ValueError(f"{word} is not a number in JSON")

    start = len(text) - len(text.lstrip())
    position = Position(text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))
    try:
        content = json.loads(text, object_pairs_hook=unique, parse_constant=finite)
    except json.JSONDecodeError as error:
        raise _ParseError(Position(error.lineno, error.colno), f"is not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise _ParseError(position, f"is not usable JSON: {error}") from error
    yield Document(content, position, _json_places(text))


def _json_places(text: str) -> Mapping[str, Position]:
    """Return the positions of the fields in a JSON text, which is parsed as YAML; empty if that fails."""
    try:
        return next((document.positions for document in _yaml(text)), {})
    except _ParseError:
        return {}


def _yaml(text: str) -> Iterator[Document]:
    try:
        loader = yaml.CLoader(text)
        try:
            for node in _Composer(loader).nodes():
                document = _Builder().document(node)
                if document.object is not None:
                    yield document
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = Position(mark.line + 1, mark.column + 1) if mark else Position(1, 1)
        problem = TAB if mark and _is_indented_by_tab(text, mark.line) else error.problem or error.context
        raise _ParseError(position, f"is not YAML: {problem}") from error
    except yaml.YAMLError as error:
        raise _ParseError(Position(1, 1), f"is not YAML: {' '.join(str(error).split())}") from error


def _is_indented_by_tab(text: str, line: int) -> bool:
    lines = text.splitlines()
    content = lines[line] if line < len(lines) else ""
    return "\t" in content[: len(content) - len(content.lstrip())]


class _Composer:
    """A composer that builds nodes from the parser's events. PyYAML's composer recurses in C and crashes on deep nesting."""

    def __init__(self, loader: yaml.CLoader) -> None:
        self._loader = loader
        self._anchors: dict[str, _Node] = {}

    def nodes(self) -> Iterator[_Node]:
        """Yield the root node of each document."""
        self._loader.get_event()
        while not self._loader.check_event(yaml.StreamEndEvent):
            self._loader.get_event()
            self._anchors = {}
            yield self._node(0)
            self._loader.get_event()

    def _node(self, depth: int) -> _Node:
        event: Any = self._loader.get_event()
        position = Position(event.start_mark.line + 1, event.start_mark.column + 1)
        if depth > _DEEPEST:
            raise _ParseError(position, f"is nested deeper than {_DEEPEST} levels")
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise _ParseError(position, f"is not YAML: *{event.anchor} needs an anchor &{event.anchor} before it")
            return self._anchors[event.anchor]
        node = self._content(event, position, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _content(self, event: Any, position: Position, depth: int) -> _Node:
        if isinstance(event, yaml.ScalarEvent):
            resolve: Any = self._loader.resolve  # the type stubs lack this method
            return _Scalar(position, event.tag or resolve(yaml.ScalarNode, event.value, event.implicit), event.value)
        inner: list[_Node] = []
        while not self._loader.check_event(yaml.SequenceEndEvent, yaml.MappingEndEvent):
            inner.append(self._node(depth + 1))
        self._loader.get_event()
        if isinstance(event, yaml.SequenceStartEvent):
            return _Sequence(position, inner)
        return _Mapping(position, list(zip(inner[::2], inner[1::2], strict=True)))


class _Builder:
    """A builder of a document from nodes. It records the positions of fields, and limits the values that aliases copy."""

    def __init__(self) -> None:
        self._positions: dict[str, Position] = {}
        self._seen: set[int] = set()
        self._copies = 0

    def document(self, node: _Node) -> Document:
        value = self._value(node, "")
        return Document(value, node.position, self._positions)

    def _value(self, node: _Node, path: str) -> Any:
        self._count(node)
        if isinstance(node, _Mapping):
            return self._mapping(node, path)
        if isinstance(node, _Sequence):
            return [self._item(child, f"{path}[{index}]") for index, child in enumerate(node.items)]
        return _scalar(node)

    def _count(self, node: _Node) -> None:
        if id(node) in self._seen:
            self._copies += 1
        self._seen.add(id(node))
        if self._copies > _MOST_COPIES:
            raise _ParseError(
                node.position, f"has aliases that expand to more than {_MOST_COPIES} values: write the values out"
            )

    def _item(self, node: _Node, path: str) -> Any:
        self._positions[path] = node.position
        return self._value(node, path)

    def _mapping(self, node: _Mapping, path: str) -> dict[str, Any]:
        content: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.pairs:
            if isinstance(key, _Scalar) and key.tag == f"{_TAG}merge":
                for name, inner in self._merge(value, path).items():
                    merged.setdefault(name, inner)
                continue
            if not isinstance(key, _Scalar):
                raise _ParseError(key.position, "can't be a key; write the key as text")
            name, position = key.text, key.position
            if name in content:
                raise _ParseError(
                    position, f"key {name!r} is written twice, first on line {lines[name]}: keep one of them"
                )
            lines[name] = position.line
            inner_path = f"{path}.{name}" if path else name
            content[name] = self._value(value, inner_path)
            self._positions[inner_path] = position
        return {**merged, **content}

    def _merge(self, node: _Node, path: str) -> dict[str, Any]:
        """Return the fields that `<<` adds. If several mappings have the same key, the first mapping wins."""
        if not isinstance(node, _Sequence):
            return self._merged(node, path)
        merged: dict[str, Any] = {}
        for child in node.items:
            merged = {**self._merged(child, path), **merged}
        return merged

    def _merged(self, node: _Node, path: str) -> dict[str, Any]:
        if not isinstance(node, _Mapping):
            raise _ParseError(
                node.position, "can't be merged by <<; write an alias of an object, for example <<: *base"
            )
        self._count(node)
        return self._mapping(node, path)


def _scalar(node: _Scalar) -> Any:
    text, tag = node.text, node.tag.removeprefix(_TAG)
    if tag == "null":
        return None
    if tag == "bool":
        return _BOOLEANS[text.lower()]
    if tag == "int":
        return _whole(text)
    if tag == "float":
        return _fraction(text, node.position)
    if tag in ("str", "timestamp", "value"):
        return text
    raise _ParseError(node.position, f"has the tag {node.tag}, which manifests can't use: write plain values")


def _whole(text: str) -> int | str:
    if _WHOLE.fullmatch(text) is None:  # `1:30` is text, not the base-60 number of YAML 1.1
        return text
    digits = text.replace("_", "")
    without_server_fields = digits.lstrip("+-")
    octal = len(without_server_fields) > 1 and without_server_fields.isdigit() and without_server_fields.startswith("0")
    return int(digits, 8) if octal else int(digits, 0)


def _fraction(text: str, position: Position) -> float | str:
    try:
        value = float(text.replace("_", ""))
    except ValueError:
        if ":" in text:
            return text
        value = math.nan
    if not math.isfinite(value):
        raise _ParseError(position, f"{text} is not a finite number; write it with quotes if it is text")
    return value
