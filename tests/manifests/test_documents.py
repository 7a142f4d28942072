"""A manifest parses to objects, or to a mistake with its line and column."""

import pytest

from headgate.manifests.documents import Position, parse


def test_yaml_is_read_as_kubernetes_reads_it():
    text = "a: [1, 0x1f, 010, 1_000, -3]\nb: [1.5, yes, ~, 1:30, 2001-01-01, 500m, 089, 'x']\n1: on\n"
    documents, flaws = parse(text)
    assert not flaws
    assert documents[0].object == {
        "a": [1, 31, 8, 1000, -3],
        "b": [1.5, True, None, "1:30", "2001-01-01", "500m", "089", "x"],
        "1": True,
    }


def test_every_field_has_its_position():
    text = "\n---\nkind: A\nspec:\n  backends:\n  - service: x\n    weight: 1\n  - {service: y, weight: 2}\n---\n\nkind: B\n"
    (first, second), flaws = parse(text)
    assert not flaws
    assert (first.position.line, second.position.line) == (3, 11)
    assert first.locate("spec.backends[0].weight") == Position(7, 5)
    assert first.locate("spec.backends[1].weight") == Position(8, 18)
    assert first.locate("spec.backends[1]") == Position(8, 5)
    assert first.locate("spec.backends[0].port.name") == Position(6, 5)
    assert first.locate("metadata.name") == first.position


def test_a_list_is_expanded_to_its_items():
    text = "apiVersion: v1\nkind: List\nitems:\n- kind: A\n  spec:\n    x: 1\n- kind: List\n  items: [{kind: B}]\n- 5\n"
    documents, flaws = parse(text)
    assert [document.object["kind"] for document in documents] == ["A", "B"]
    assert documents[0].locate("spec.x") == Position(6, 5)
    assert [(flaw.position.line, flaw.message) for flaw in flaws] == [
        (9, "is not an object; write apiVersion, kind and metadata")
    ]


def test_a_top_level_name_becomes_metadata_name():  # R72
    documents, _ = parse("apiVersion: v1beta1\nkind: TLSConfig\nname: tls\nspec: {}\n")
    assert documents[0].object["metadata"] == {"name": "tls"}
    assert "name" not in documents[0].object
    assert documents[0].locate("metadata.name") == Position(3, 1)


def test_anchors_and_merge_keys_are_expanded():
    documents, flaws = parse("a: &a {x: 1, y: 1}\nb: {<<: *a, y: 2}\nc: {<<: [{z: 3}, *a]}\nd: [*a]\n")
    assert not flaws
    assert documents[0].object["b"] == {"x": 1, "y": 2}
    assert documents[0].object["c"] == {"x": 1, "y": 1, "z": 3}
    assert documents[0].object["d"] == [{"x": 1, "y": 1}]


def bomb(link):
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{level}: &a{level} " + link(f"*a{level - 1}") for level in range(1, 12)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", (3, 1), "key 'a' is written twice, first on line 1"),
        ("a:\n\tb: 1\n", (2, 1), "is not YAML: a tab indents this line"),
        ("a:\n  b:\n  \tc: 1\n", (3, 3), "is not YAML: a tab indents this line"),
        ("a: {b: 1", (2, 1), "is not YAML"),
        ("a: b: c", (1, 5), "is not YAML: mapping values are not allowed"),
        ("a: \x01", (1, 1), "is not YAML: unacceptable character"),
        ("a: .inf", (1, 4), "is not a finite number"),
        ("a: !!binary aGk=", (1, 4), "has the tag"),
        ("a: !include x.yaml", (1, 4), "has the tag !include"),
        ("? [x]\n: 1", (1, 3), "can't be a key"),
        ("a: *b", (1, 4), "*b needs an anchor &b before it"),
        ("a: &a [*a]", (1, 8), "*a needs an anchor &a before it"),
        ("a: {<<: 5}", (1, 9), "can't be merged"),
        ("[" * 100_000, (1, 102), "is nested deeper than 100 levels"),
        ("- " * 10_000, (1, 203), "is nested deeper than 100 levels"),
        ("just text", (1, 1), "is not an object"),
        ("%YAML 3.0\n---\na: 1", (1, 1), "is not YAML"),
        (bomb(lambda alias: f"[{', '.join([alias] * 9)}]"), None, "expand to more than 10000 values"),
        (bomb(lambda alias: f"{{<<: [{', '.join([alias] * 9)}]}}"), None, "expand to more than 10000 values"),
    ],
)
def test_invalid_yaml_is_reported_with_position_and_reason(text, position, message):
    documents, flaws = parse(text)
    assert not documents
    assert message in flaws[0].message
    assert position is None or flaws[0].position == position


def test_documents_before_a_mistake_are_parsed():
    documents, flaws = parse("kind: A\n---\nkind: [\n")
    assert [document.object for document in documents] == [{"kind": "A"}]
    assert flaws


def test_fields_of_json_have_positions():
    documents, flaws = parse('{\n\t"kind": "A",\n\t"spec": {"x": "\\ud83d\\ude00"}\n}', is_json=True)
    assert not flaws
    assert documents[0].object == {"kind": "A", "spec": {"x": "😀"}}
    assert parse('{\n "kind": "A",\n "spec": {"x": 1}}', is_json=True)[0][0].locate("spec.x") == Position(3, 11)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('{"a": 1,\n "b": }', 2, "is not JSON: Expecting value"),
        ('{"a": 1, "a": 2}', 1, "key 'a' is written twice"),
        ('{"a": NaN}', 1, "NaN is not a number"),
        ("[" * 200_000, 1, "is not usable JSON"),
        ('{"a": ' + "9" * 5000 + "}", 1, "is not usable JSON"),
        ("5", 1, "is not an object"),
    ],
)
def test_invalid_json_is_reported_with_position_and_reason(text, line, message):
    documents, flaws = parse(text, is_json=True)
    assert not documents
    assert flaws[0].position.line == line
    assert message in flaws[0].message


MIXED = '{"kind": "A"}\n{"kind": "B",\n\t"spec": {"x": 1}}\n---\n{"kind": "List", "items": [{"kind": "C"}]}\n---\nkind: D\nspec:\n  x: 2\n'


def test_json_documents_follow_each_other_as_kubectl_reads_them():
    documents, flaws = parse(MIXED, is_json=True)
    assert not flaws
    assert [document.object["kind"] for document in documents] == ["A", "B", "C", "D"]
    assert [document.position.line for document in documents] == [1, 2, 5, 7]
    assert documents[3].locate("spec.x") == Position(9, 3)
    assert parse('{"kind": "A"}{"kind": "B"}', is_json=True)[0][1].position == Position(1, 14)


def test_a_mistake_in_a_later_json_document_has_its_line():
    for text, line in (
        ('{"kind": "A"}\n---\n{"kind": }', 3),
        ('{"kind": "A"} x', 1),
        ('{"a": 1}\n{"a": 1, "a": 2}', 2),
    ):
        documents, flaws = parse(text, is_json=True)
        assert len(documents) == (0 if line == 1 else 1)
        assert flaws[0].position.line == line
