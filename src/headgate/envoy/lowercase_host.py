"""Convert the host to lower case for the HTTP proxy, as Envoy compares scope keys byte by byte (ADR 0002)."""

from google.protobuf.message import Message

from headgate.envoy import pb
from headgate.envoy.draw import HEADER
from headgate.envoy.filter_state import FILTER, state_writer

_LOWER = f"""
function envoy_on_request(request)
  local headers = request:headers()
  headers:remove("{HEADER}")
  headers:replace(":authority", string.lower(headers:get(":authority")))
  request:clearRouteCache()
end
"""


def lowercase_host_filters() -> tuple[pb.HttpFilter, ...]:
    """Return the filters that convert the host to lower case and select the scope again, for hosts with capital
    letters.

    Before the conversion, the request has no route. Envoy reads only once which filters a route enables, so these
    filters also write the filter state that the route may need. A route that draws a backend (`draw`) gets no number, so
    Envoy draws one for each such request independently; a number of the client does not count.
    """
    lower = pb.Lua(default_source_code=pb.DataSource(inline_string=_LOWER))
    return _with_capitals(f"{FILTER}_of_capitals", state_writer()), _with_capitals("headgate.lower_case_host", lower)


def _with_capitals(name: str, config: Message) -> pb.HttpFilter:
    """Return a filter that runs only for hosts with capital letters."""
    extension = pb.TypedExtensionConfig(name=name, typed_config=pb.pack(config))
    matching = pb.ExtensionWithMatcher(extension_config=extension, xds_matcher=_without_capitals())
    return pb.HttpFilter(name=name, typed_config=pb.pack(matching))


def _without_capitals() -> pb.XdsMatcher:
    """Return the matcher that skips the filter for hosts without capital letters."""
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
