"""Lower the host of a request to the HTTP proxy: Envoy compares the keys of scopes byte by byte (ADR 0002)."""

from headgate.envoy import pb

_LOWER = """
function envoy_on_request(request)
  local headers = request:headers()
  headers:replace(":authority", string.lower(headers:get(":authority")))
  request:clearRouteCache()
end
"""


def lower_case_filter() -> pb.HttpFilter:
    """Return the filter that lowers the host and selects the scope again; it runs only for hosts with capital letters."""
    lower = pb.Lua(default_source_code=pb.DataSource(inline_string=_LOWER))
    config = pb.ExtensionWithMatcher(
        extension_config=pb.TypedExtensionConfig(name="envoy.filters.http.lua", typed_config=pb.pack(lower)),
        xds_matcher=_without_capitals(),
    )
    return pb.HttpFilter(name="headgate.lower_case_host", typed_config=pb.pack(config))


def _without_capitals() -> pb.XdsMatcher:
    """Return the matcher of hosts that skip the filter."""
    host = pb.HttpRequestHeaderInput(header_name=":authority")
    regex = pb.XdsRegexMatcher(google_re2=pb.XdsRegexMatcher.GoogleRE2(), regex="[^A-Z]*")
    single = pb.XdsMatcher.MatcherList.Predicate.SinglePredicate(
        input=pb.XdsTypedExtension(name="host", typed_config=pb.pack(host)),
        value_match=pb.XdsStringMatcher(safe_regex=regex),
    )
    matcher = pb.XdsMatcher.MatcherList.FieldMatcher(
        predicate=pb.XdsMatcher.MatcherList.Predicate(single_predicate=single),
        on_match=pb.XdsMatcher.OnMatch(action=pb.XdsTypedExtension(name="skip", typed_config=pb.pack(pb.SkipFilter()))),
    )
    return pb.XdsMatcher(matcher_list=pb.XdsMatcher.MatcherList(matchers=[matcher]))
