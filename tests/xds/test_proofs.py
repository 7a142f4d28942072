"""Tokens that headgate signs: what they prove, and what is said about those that prove nothing."""

import stat
from datetime import timedelta

import pytest

from headgate.errors import ProxyError
from headgate.xds.proofs import LocalTokens, Refused, Remembered, bearer, secret_in

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


async def refusal(proofs, node_id, token):
    with pytest.raises(Refused) as refused:
        await proofs.check(node_id, token)
    assert not token or token not in str(refused.value)
    return str(refused.value)


async def test_a_token_proves_one_proxy_until_it_ends(tokens, clock):
    token = tokens.issue(WEB_1)
    assert await tokens.check(WEB_1, token) == int(NOON) + 600
    clock.now += 599
    assert await tokens.check(WEB_1, token) == int(NOON) + 600
    clock.now += 1
    assert await refusal(tokens, WEB_1, token) == (
        "the token of sidecar/default/web-1 expired at 2027-01-15T08:10:00Z: put a new one into its file"
    )


async def test_another_proxys_token_is_refused_by_both_names(tokens):
    token = tokens.issue(WEB_1)
    assert await refusal(tokens, WEB_2, token) == f"this token is {WEB_1}'s, not {WEB_2}'s"


async def test_a_strangers_name_does_not_get_into_the_log_as_it_is(tokens):
    said = await refusal(tokens, "sidecar\n\x1b[2J" + "x" * 1000, tokens.issue(WEB_1))
    assert said.isprintable()
    assert len(said) < 400


async def test_tokens_outlive_a_restart_but_are_worth_nothing_elsewhere(tokens, clock, tmp_path):
    secret = secret_in(tmp_path / "secret")
    token = LocalTokens(secret, clock=clock).issue(WEB_1)
    assert await LocalTokens(secret_in(tmp_path / "secret"), clock=clock).check(WEB_1, token)
    assert "not signed by this headgate" in await refusal(tokens, WEB_1, token)


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
async def test_whatever_is_changed_the_signature_fits_no_more(tokens, part, change):
    parts = tokens.issue(WEB_1).split(".")
    parts[part] = change(parts[part])
    assert "not signed by this headgate" in await refusal(tokens, WEB_1, ".".join(parts))


@pytest.mark.parametrize("token", ["", "abc", "a.b", "a.b.c.d", "ä.1.c", "eyJhbGciOi"])
async def test_what_is_no_token_is_told_so(tokens, token):
    assert "malformed" in await refusal(tokens, WEB_1, token)


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
def test_a_stream_brings_one_bearer_token(headers, said):
    with pytest.raises(Refused, match=said):
        bearer(headers)


def test_the_scheme_is_written_as_one_likes():
    assert bearer(["bearer a.b.c"]) == bearer(["Bearer a.b.c"]) == "a.b.c"


async def test_the_token_file_is_the_owners_and_replaced_all_at_once(tokens, clock, tmp_path):
    path = tmp_path / "token"
    tokens.write(WEB_1, path)
    first, inode = path.read_text(), path.stat().st_ino
    clock.now += 300
    tokens.write(WEB_1, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_ino != inode  # renamed onto, never written into: nobody reads half of a token
    assert path.read_text() != first
    assert await tokens.check(WEB_1, path.read_text()) == int(NOON) + 900
    assert [item.name for item in tmp_path.iterdir()] == ["token"]


def test_the_secret_is_made_once_for_its_owner_alone(tmp_path):
    path = tmp_path / "secret"
    secret = secret_in(path)
    assert len(secret) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert secret_in(path) == secret


def test_a_secret_that_others_could_read_signs_nothing(tmp_path):
    path = tmp_path / "secret"
    secret_in(path)
    path.chmod(0o640)
    with pytest.raises(ProxyError, match=r"secret can be read by others.*remove it"):
        secret_in(path)


@pytest.mark.parametrize("content", [b"", b"short", bytes(33)])
def test_a_file_that_is_no_secret_is_not_used(tmp_path, content):
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ProxyError, match="no secret of headgate's: remove it"):
        secret_in(path)
    assert path.exists()


def test_a_short_secret_is_a_bug():
    with pytest.raises(ValueError, match="16 bytes"):
        LocalTokens(bytes(16))


class Counting:
    """Proofs that count how often they are asked."""

    def __init__(self, proofs):
        self.proofs, self.asked = proofs, 0

    async def check(self, node_id, token):
        self.asked += 1
        return await self.proofs.check(node_id, token)


async def test_who_shows_a_good_proof_every_few_seconds_is_checked_once_a_minute(tokens, clock):
    counting = Counting(tokens)
    proofs = Remembered(counting, clock=clock)
    token = tokens.issue(WEB_1)
    for _ in range(60):
        assert await proofs.check(WEB_1, token) == int(NOON) + 600
        clock.now += 2
    assert counting.asked == 2
    clock.now = NOON + 600
    assert "expired" in await refusal(proofs, WEB_1, token)


async def test_a_remembered_proof_is_nobody_elses_and_a_bad_one_is_not_remembered(tokens, clock):
    counting = Counting(tokens)
    proofs = Remembered(counting, clock=clock)
    token = tokens.issue(WEB_1)
    await proofs.check(WEB_1, token)
    for _ in range(2):
        assert "this token is" in await refusal(proofs, WEB_2, token)
    assert counting.asked == 3
