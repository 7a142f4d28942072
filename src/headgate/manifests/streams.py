"""Read manifests document by document with their texts, and write changed documents as YAML.

A document that does not change keeps its text with its comments, which a parser would lose.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import yaml

from headgate.manifests.documents import MARKER, Document, DocumentText, json_parts, parse_written
from headgate.manifests.files import FileProblem, TextFile

_PREAMBLE = re.compile(r"(?:[ \t]*(?:[#%].*)?\n)*")
_HEAD = re.compile(r"(?:---[ \t]*(?:#.*)?\n)?(?:[ \t]*(?:#.*)?\n)*")
_NUMBER_IN_GO = re.compile(r"[-+]?(0x[0-9a-fA-F_]+|0[bo][0-7_]+|[._]*[0-9][0-9._]*([eE][-+]?[0-9]+)?)")


class WrittenDocument(NamedTuple):
    """A document of a file with its text. `document` is None if the text has only comments.

    `line` is the number of lines before the text in its file.
    """

    file: str
    text: str
    line: int
    document: Document | None

    def problem(self, field: str, message: str) -> FileProblem:
        """Return a problem with a field of the document."""
        position = self.document.locate(field) if self.document else None
        line, column = position or (1, 1)
        return FileProblem(self.file, line + self.line, column, field, message)

    def with_content(self, content: Any) -> str:
        """Return the text with its content replaced. The document marker and the comments before the content stay."""
        head = _HEAD.match(self.text)
        kept = head[0] if head else ""
        if self.text.startswith("---") and not kept.startswith("---"):
            kept = "---\n"
        return kept + to_yaml(content)


def written_documents(files: Iterable[TextFile]) -> tuple[list[WrittenDocument], list[FileProblem]]:
    """Return the documents of files, and the syntax mistakes in them."""
    written: list[WrittenDocument] = []
    problems: list[FileProblem] = []
    for file in files:
        for line, text, is_json in _json_documents(file.text) if file.is_json else _split(file.text):
            documents, broken = parse_written(text, is_json=is_json)
            written_document = WrittenDocument(file.name, text, line, documents[0] if documents else None)
            written.append(written_document)
            problems += [
                FileProblem(file.name, line + problem.position.line, problem.position.column, "", problem.message)
                for problem in broken
            ]
            if written_document.document and not isinstance(written_document.document.object, Mapping):
                problems.append(written_document.problem("", "is not an object; write apiVersion, kind and metadata"))
    return written, problems


def _json_documents(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield each document of a text that begins with JSON, with the number of lines before it, and whether it is JSON."""
    first, *following = [*json_parts(text)] or [DocumentText("", text, is_json=True)]
    yield 0, text if not following else first.before + first.text, first.is_json
    yield from ((part.before.count("\n"), part.text, part.is_json) for part in following)


def _split(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield each document of a YAML text, with the number of lines before it, and that it is no JSON. A marker begins its document."""
    preamble = _PREAMBLE.match(text)
    starts = [marker.start() for marker in MARKER.finditer(text)]
    if not starts or not preamble or starts[0] > preamble.end():
        starts.insert(0, 0)
    starts[0] = 0  # comments and directives before the first marker belong to the first document
    for start, end in pairwise([*starts, len(text)]):
        yield text.count("\n", 0, start), text[start:end], False


def join(texts: Iterable[str]) -> str:
    """Return a YAML text of documents. Every document but the first begins with a marker."""
    joined = ""
    for text in texts:
        if joined and not joined.endswith("\n"):
            joined += "\n"
        if joined and not MARKER.match(text.lstrip()):
            joined += "---\n"
        joined += text
    return joined


class _Dumper(yaml.CSafeDumper):
    """A dumper whose text Kubernetes reads as the same values: without aliases, and with quoted texts like 1e3 and 0o7."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True

    def text(self, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else "'" if _NUMBER_IN_GO.fullmatch(value) else None
        return self.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _Dumper.text)


def to_yaml(content: Any) -> str:
    """Return a value as YAML, with its fields in their order."""
    return str(yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))
