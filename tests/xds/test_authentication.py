"""Tests of the tokens of proxies: signing, verification, and the messages about invalid ones."""

import stat
from datetime import timedelta

import pytest

from headgate.errors import ProxyError
from headgate.xds.authentication import CachingVerifier, InvalidToken, LocalTokens, bearer_token, load_signing_secret

SECRET = bytes(range(32))
WEB_1, WEB_2 = "sidecar/default/web-1", "sidecar/default/web-2"
NOON = 1_800_000_000.5  # 2027-01-15T08:00:00Z


class Clock:
    def __init__(self):
        self.now = NOON

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def tokens(clock):
    return LocalTokens(SECRET, lifetime=timedelta(minutes=10), clock=clock)


async def rejection(verifier, node_id, token):
    with pytest.raises(InvalidToken) as invalid:
        await verifier.verify(node_id, token)
    assert not token or token not in str(invalid.value)
    return str(invalid.value)


async def test_a_token_authenticates_its_proxy_until_it_expires(tokens, clock):
    token = tokens.issue(WEB_1)
    assert await tokens.verify(WEB_1, token) == int(NOON) + 600
    clock.now += 599
    assert await tokens.verify(WEB_1, token) == int(NOON) + 600
    clock.now += 1
    assert await rejection(tokens, WEB_1, token) == (
        "the token of sidecar/default/web-1 expired at 2027-01-15T08:10:00Z: write a new one to its token file"
    )


async def test_the_error_about_another_proxys_token_names_both_proxies(tokens):
    token = tokens.issue(WEB_1)
    assert await rejection(tokens, WEB_2, token) == f"the token belongs to {WEB_1}, not to {WEB_2}"


async def test_a_node_id_with_control_characters_is_quoted_and_shortened(tokens):
    said = await rejection(tokens, "sidecar\n\x1b[2J" + "x" * 1000, tokens.issue(WEB_1))
    assert said.isprintable()
    assert len(said) < 400


async def test_a_token_is_valid_after_a_restart_but_not_with_another_secret(tokens, clock, tmp_path):
    secret = load_signing_secret(tmp_path / "secret")
    token = LocalTokens(secret, clock=clock).issue(WEB_1)
    assert await LocalTokens(load_signing_secret(tmp_path / "secret"), clock=clock).verify(WEB_1, token)
    assert "not signed by this headgate" in await rejection(tokens, WEB_1, token)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        (0, lambda named: f"{named[:-1]}A"),
        (0, lambda named: f"{named}="),
        (1, lambda ends: str(int(ends) + 1)),
        (1, lambda ends: f"0{ends}"),
        (2, lambda signature: signature[:-1]),
        (2, lambda signature: f"{signature}="),
        (2, lambda signature: signature[:0]),
    ],
)
async def test_a_modified_token_has_an_invalid_signature(tokens, part, change):
    parts = tokens.issue(WEB_1).split(".")
    parts[part] = change(parts[part])
    assert "not signed by this headgate" in await rejection(tokens, WEB_1, ".".join(parts))


def test_a_token_names_its_proxy_before_it_is_verified(tokens):
    assert tokens.node_of(tokens.issue(WEB_1)) == CachingVerifier(tokens).node_of(tokens.issue(WEB_1)) == WEB_1
    for token in ("", "abc", "a.b.c.d", "\u00e4.1.c", "a.1.c", "_w.1.c"):
        with pytest.raises(InvalidToken, match="malformed"):
            tokens.node_of(token)


@pytest.mark.parametrize("token", ["", "abc", "a.b", "a.b.c.d", "ä.1.c", "eyJhbGciOi"])
async def test_a_malformed_token_is_reported_as_malformed(tokens, token):
    assert "malformed" in await rejection(tokens, WEB_1, token)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ([], "no token"),
        (["Bearer a", "Bearer b"], "2 authorization headers"),
        (["Bearer "], "has no token"),
        (["Bearer"], "has no token"),
        (["Basic abc"], "has no token"),
        (["abc"], "has no token"),
    ],
)
def test_a_stream_must_send_exactly_one_bearer_token(headers, said):
    with pytest.raises(InvalidToken, match=said):
        bearer_token(headers)


def test_the_scheme_of_the_authorization_header_is_case_insensitive():
    assert bearer_token(["bearer a.b.c"]) == bearer_token(["Bearer a.b.c"]) == "a.b.c"


async def test_the_token_file_is_private_and_replaced_atomically(tokens, clock, tmp_path):
    path = tmp_path / "token"
    tokens.write(WEB_1, path)
    first, inode = path.read_text(), path.stat().st_ino
    clock.now += 300
    tokens.write(WEB_1, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_ino != inode  # replaced by a rename, so that no reader sees half of a token
    assert path.read_text() != first
    assert await tokens.verify(WEB_1, path.read_text()) == int(NOON) + 900
    assert [item.name for item in tmp_path.iterdir()] == ["token"]


def test_the_signing_secret_is_created_once_and_private(tmp_path):
    path = tmp_path / "secret"
    secret = load_signing_secret(path)
    assert len(secret) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_signing_secret(path) == secret


def test_a_signing_secret_that_other_users_can_read_is_not_used(tmp_path):
    path = tmp_path / "secret"
    load_signing_secret(path)
    path.chmod(0o640)
    with pytest.raises(ProxyError, match=r"other users can read .*secret.*remove it"):
        load_signing_secret(path)


@pytest.mark.parametrize("content", [b"", b"short", bytes(33)])
def test_a_signing_secret_of_the_wrong_size_is_not_used(tmp_path, content):
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ProxyError, match="not a token signing secret of headgate: remove it"):
        load_signing_secret(path)
    assert path.exists()


def test_a_short_signing_secret_raises_value_error():
    with pytest.raises(ValueError, match="16 bytes"):
        LocalTokens(bytes(16))


class CountingVerifier:
    """A verifier that counts its calls."""

    def __init__(self, verifier):
        self.verifier, self.calls = verifier, 0

    def node_of(self, token):
        return self.verifier.node_of(token)

    async def verify(self, node_id, token, *, address):
        self.calls += 1
        return await self.verifier.verify(node_id, token, address=address)


async def test_the_caching_verifier_verifies_a_token_once_a_minute(tokens, clock):
    counting = CountingVerifier(tokens)
    verifier = CachingVerifier(counting, clock=clock)
    token = tokens.issue(WEB_1)
    for _ in range(60):
        assert await verifier.verify(WEB_1, token) == int(NOON) + 600
        clock.now += 2
    assert counting.calls == 2
    clock.now = NOON + 600
    assert "expired" in await rejection(verifier, WEB_1, token)


async def test_the_caching_verifier_does_not_cache_invalid_tokens(tokens, clock):
    counting = CountingVerifier(tokens)
    verifier = CachingVerifier(counting, clock=clock)
    token = tokens.issue(WEB_1)
    await verifier.verify(WEB_1, token)
    for _ in range(2):
        assert "the token belongs to" in await rejection(verifier, WEB_2, token)
    assert counting.calls == 3
