"""Headers that proxies remove, change, join or reject (model/sanitizing.py), for conditions and for requests."""

from hypothesis import strategies as st

CONDITIONS = {
    "accept": (".+", "a,b", "a"),
    "connection": (".*", "upgrade"),
    "content-length": ("0", ".*"),
    "expect": (".*", "100-continue"),
    "keep-alive": (".*",),
    "referer": (".+", "http://a/b"),
    "te": ("trailers", ".*"),
    "upgrade": (".*", "websocket"),
    "x-b": (".*", "1"),
    "x-envoy-original-path": (".*", "/a"),
    "x-envoy-retry-on": (".*",),
    "x-forwarded-proto": ("http", "https", ".*"),
}
NAMES = st.sampled_from(sorted(CONDITIONS))
OF_ANY = (
    ("accept", ""),
    ("accept", "a"),
    ("accept", "b"),
    ("expect", "100-continue"),
    ("expect", "100-Continue"),
    ("expect", "something"),
    ("referer", "http://a/b"),
    ("referer", "http://u@a/b"),
    ("referer", "http://a/b#c"),
    ("referer", "http://a_b/"),
    ("referer", "/a?b"),
    ("referer", "a b"),
    ("referer", "a:b"),
    ("referer", ""),
    ("te", "trailers"),
    ("x-a", " 1\t"),
    ("x-b", "1"),
    ("x-b", "\x01"),
    ("x-b", "1" * 200_000),
    ("x-envoy-original-path", "/a"),
    ("x-envoy-retry-on", "5xx"),
    ("x-envoy-other", "1"),
    ("x_envoy_original_path", "/a"),
    ("x-headgate-host", "1"),
    ("x_forwarded_proto", "https"),
    ("x-forwarded_client-cert", "1"),
    ("x-envoy-max-retries", "1"),
    ("x-envoy-upstream-rq-timeout-ms", "1"),
    ("x-envoy-internal", "true"),
    ("x-forwarded-proto", "https"),
    ("x-forwarded-proto", "http"),
    ("x-forwarded-proto", ""),
    ("x-forwarded-host", "b"),
    ("x-request-id", "1"),
    ("x_a", "1"),
    ("bad name", "1"),
)
OF_HTTP1 = (
    ("x-b", "1" * 600_000),  # over HTTP/2, a header above 256 KiB ends the connection (docs/tasks/protocols.md)
    ("connection", "X-A"),
    ("connection", "x-a, x-b"),
    ("connection", "accept,x-b ,te"),
    ("connection", "close"),
    ("connection", "keep-alive, Upgrade"),
    ("connection", "upgrade,x-a"),
    ("connection", "upgrade, http2-settings, x-a"),
    ("connection", "content-length"),
    ("connection", "cookie"),
    ("connection", "user-agent"),
    ("connection", "x-forwarded-proto"),
    ("connection", "x-forwarded-client-cert"),
    ("connection", "host"),
    ("connection", ":path"),
    ("connection", "a,b,c,d,e,f,g,h,i,j"),
    ("upgrade", "websocket"),
    ("upgrade", "h2c"),
    ("upgrade", "other"),
    ("http2-settings", "AAA"),
    ("keep-alive", "timeout=5"),
    ("proxy-connection", "keep-alive"),
    ("te", "gzip"),
    ("te", "gzip, trailers"),
    ("te", "Trailers"),
    ("te", ""),
    ("transfer-encoding", "gzip"),
    ("content-length", "0"),
    ("content-length", "x"),
)


def lists(*, http1: bool, max_size: int = 3) -> st.SearchStrategy[list[tuple[str, str]]]:
    """Return a strategy for lists of headers that proxies treat specially.

    None names WebSocket twice: callers' proxies refuse it only if they have a route when the headers arrive, which is no part
    of the model (docs/tasks/explain.md).
    """
    headers = st.lists(st.sampled_from(OF_ANY + OF_HTTP1 if http1 else OF_ANY), max_size=max_size)
    return headers.filter(lambda drawn: drawn.count(("upgrade", "websocket")) < 2)
