"""What routes know of a request besides what it carries: a made-up identity of a user, and the path without its query.

A filter writes both as filter state, and the route is looked up again with them. It runs on the routes that enable it: a
request that needs the second lookup must match one of these at the first.
"""

import re

from headgate.envoy import pb
from headgate.model.requests import Path

FILTER = "headgate.state"
USER_KEY = "headgate.user"
PATH_KEY = "headgate.path"
"""Envoy matches one expression against a path; its header `:path`, which any number may match, includes the query."""


def state_filter() -> pb.HttpFilter:
    """Return the filter; it does nothing but on routes that enable it."""
    return pb.HttpFilter(name=FILTER, typed_config=pb.pack(state_writer()), disabled=True)


def state_writer() -> pb.HttpSetFilterState:
    """Return what writes the state of every request that comes to it."""
    state = [_state(USER_KEY, "%UNIQUE_ID%"), _state(PATH_KEY, "%PATH(NQ)%")]
    return pb.HttpSetFilterState(on_request_headers=state, clear_route_cache=True)


def enable(route: pb.Route) -> None:
    """Let the filter run on a route."""
    route.typed_per_filter_config[FILTER].CopyFrom(pb.pack(pb.RouteFilterConfig(config=pb.Any())))


def path_matcher(path: Path) -> pb.FilterStateMatcher:
    """Return a condition on the path without its query; it fails before the filter has run."""
    if path.kind == "exact":
        return pb.FilterStateMatcher(key=PATH_KEY, string_match=pb.StringMatcher(exact=path.value))
    pattern = path.value if path.kind == "regex" else f"{re.escape(path.value.rstrip('/'))}(?:/.*)?"
    matcher = pb.StringMatcher(safe_regex=pb.RegexMatcher(regex=pattern or "(?:)"))
    return pb.FilterStateMatcher(key=PATH_KEY, string_match=matcher)


def _state(key: str, text: str) -> pb.FilterStateValue:
    return pb.FilterStateValue(
        object_key=key,
        factory_key="envoy.hashable_string",
        format_string=pb.SubstitutionFormatString(text_format_source=pb.DataSource(inline_string=text)),
    )
