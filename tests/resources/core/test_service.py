"""Keys of ConfigMaps and Secrets, and names in HTTPRouteGroups, are those that Kubernetes accepts."""

import pytest
from tests.decoding import validate
from tests.make.objects import config_map, http_route_group, obj


@pytest.mark.parametrize("key", ["a", "key.name", "KEY_NAME", "key-name", ".env", "x" * 253])
def test_a_key_of_a_config_map_may_be_the_name_of_a_file(key: str) -> None:
    assert validate(config_map("a", {key: "1"})) == ()
    assert validate(obj("Secret", "a", stringData={key: "1"})) == ()


@pytest.mark.parametrize(
    "key", ["", ".", "..", "..data", "../../etc/passwd", "a/b", "a b", "a\n", "\x1b[31m", "ä", "x" * 254]
)
def test_a_key_that_is_no_name_of_a_file_is_rejected(key: str) -> None:
    objects = (
        ("data", config_map("a", {key: "1"})),
        ("binaryData", obj("ConfigMap", "a", binaryData={key: "MQ=="})),
        ("data", obj("Secret", "a", data={key: "MQ=="})),
        ("stringData", obj("Secret", "a", stringData={key: "1"})),
    )
    for field, made in objects:
        (cause,) = validate(made)
        assert (cause.field, cause.message.partition(" is not a valid key")[0]) == (field, repr(key))


def test_the_two_maps_of_a_config_map_have_different_keys() -> None:
    (cause,) = validate(obj("ConfigMap", "a", data={"k": "1"}, binaryData={"k": "MQ=="}))
    assert (cause.field, cause.message) == ("binaryData.k", "is also a key of data; keys must differ")


@pytest.mark.parametrize("name", ["m", "the-path", "v1.2", "a_b", "M" * 253])
def test_a_match_may_have_a_plain_name(name: str) -> None:
    assert validate(http_route_group("a", {name: {"pathRegex": "/"}})) == ()


@pytest.mark.parametrize("name", [" ", "a b", "a/b", "-a", "a\n", "\x1b[31m", "ä", "M" * 254])
def test_a_match_with_a_name_that_would_change_a_terminal_is_rejected(name: str) -> None:
    (cause,) = validate(http_route_group("a", {name: {"pathRegex": "/"}}))
    assert cause.field == "spec.matches[0].name"
    assert "is not a name; use at most 253 letters" in cause.message
