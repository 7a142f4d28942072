"""Documents with their texts: splitting, joining, and writing YAML that Kubernetes reads as the same values."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headgate.manifests.documents import parse_written
from headgate.manifests.files import TextFile
from headgate.manifests.streams import join, to_yaml, written_documents

PLAIN = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")) | st.sampled_from("\n\t-+._ex0123456789"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PLAIN, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "objects", "lines"),
    [
        ("kind: A\n", [{"kind": "A"}], [0]),
        ("# first\n---\nkind: A\n", [{"kind": "A"}], [0]),
        ("kind: A\n---\nkind: B\n", [{"kind": "A"}, {"kind": "B"}], [0, 1]),
        ("---\n---\n# none\n--- {kind: A}\n...\n", [None, None, {"kind": "A"}], [0, 1, 3]),
        ("kind: A\ntext: |\n  ---\n  --- b\n", [{"kind": "A", "text": "---\n--- b\n"}], [0]),
        ("---\r\nkind: A\r\n---\r\nkind: B\r\n", [{"kind": "A"}, {"kind": "B"}], [0, 2]),
    ],
)
def test_a_text_is_split_at_its_markers_and_joined_again(text: str, objects: list[object], lines: list[int]) -> None:
    found, problems = written_documents([TextFile("a.yaml", text, is_json=False)])
    assert not problems
    assert [item.document.object if item.document else None for item in found] == objects
    assert [item.line for item in found] == lines
    assert join(item.text for item in found) == text


def test_documents_of_several_files_are_separated() -> None:
    files = [
        TextFile("a.yaml", "kind: A", is_json=False),
        TextFile("b.json", '{"kind": "B"}', is_json=True),
        TextFile("c.yaml", "---\nkind: C\n", is_json=False),
    ]
    found, _ = written_documents(files)
    assert join(item.text for item in found) == 'kind: A\n---\n{"kind": "B"}\n---\nkind: C\n'


def test_replaced_content_keeps_the_document_marker_and_the_comments_before_it() -> None:
    for text, head in (
        ("kind: A # comment\n", ""),
        ("# one\n\nkind: A\n", "# one\n\n"),
        ("--- # one\n# two\nkind: A\n", "--- # one\n# two\n"),
        ("--- {kind: A}\n", "---\n"),
    ):
        ((written,), _) = written_documents([TextFile("a.yaml", text, is_json=False)])
        assert written.with_content({"kind": "B"}) == f"{head}kind: B\n"


@given(VALUES)
def test_written_values_are_read_unchanged(value: object) -> None:
    ((document,), problems) = parse_written(to_yaml({"value": value}))
    assert not problems
    assert document.object == json.loads(json.dumps({"value": value}))


def test_shared_values_are_written_without_aliases_and_numeric_strings_with_quotes() -> None:
    shared = {"cpu": "1e3"}
    assert to_yaml({"a": shared, "b": shared}) == "a:\n  cpu: '1e3'\nb:\n  cpu: '1e3'\n"
    assert yaml.safe_load(to_yaml(["0o17", "1_0", "add"])) == ["0o17", "1_0", "add"]


def test_each_json_document_of_a_file_is_kept() -> None:
    """Else `headgate inject` would lose all documents but the first."""
    text = '{"kind": "A"}\n{"kind": "B"}\n---\nkind: C\n'
    found, problems = written_documents([TextFile("<stdin>", text, is_json=True)])
    assert not problems
    assert [item.document.object for item in found if item.document] == [{"kind": kind} for kind in "ABC"]
    assert [item.line for item in found] == [0, 1, 3]
    again, problems = written_documents([TextFile("<stdin>", join(item.text for item in found), is_json=True)])
    assert [item.document.object["kind"] for item in again if item.document] == ["A", "B", "C"]
