"""Filter state that routes match: a generated identity of a new user, and the path without its query.

A filter writes both as filter state, and Envoy then selects the route again. The filter runs only on routes that
enable it, so a request that needs filter state must first match such a route.
"""

import re
from collections.abc import Sequence

from headgate.envoy import pb
from headgate.model.requests import Path

FILTER = "headgate.state"
USER_KEY = "headgate.user"
PATH_KEY = "headgate.path"
"""The filter state of a request's path without the query. Routes match further path expressions against it, because
Envoy allows one per route and the header `:path` includes the query."""


def state_filter() -> pb.HttpFilter:
    """Return the filter that writes filter state; it runs only on routes that enable it."""
    return pb.HttpFilter(name=FILTER, typed_config=pb.pack(state_writer()), disabled=True)


def state_writer(more: Sequence[pb.FilterStateValue] = ()) -> pb.HttpSetFilterState:
    """Return the filter's configuration: write the filter state, then clear the route cache, to reselect the route."""
    state = [value(USER_KEY, "%UNIQUE_ID%"), value(PATH_KEY, "%PATH(NQ)%"), *more]
    return pb.HttpSetFilterState(on_request_headers=state, clear_route_cache=True)


def enable(route: pb.Route) -> None:
    """Enable the filter that writes filter state on a route."""
    route.typed_per_filter_config[FILTER].CopyFrom(pb.pack(pb.RouteFilterConfig(config=pb.Any())))


def path_matcher(path: Path) -> pb.FilterStateMatcher:
    """Return a matcher of the path without its query; it matches nothing before the filter has run."""
    if path.kind == "exact":
        return pb.FilterStateMatcher(key=PATH_KEY, string_match=pb.StringMatcher(exact=path.value))
    pattern = path.value if path.kind == "regex" else f"{re.escape(path.value.rstrip('/'))}(?:/.*)?"
    matcher = pb.StringMatcher(safe_regex=pb.RegexMatcher(regex=pattern or "(?:)"))
    return pb.FilterStateMatcher(key=PATH_KEY, string_match=matcher)


def value(key: str, text: str, factory: str = "envoy.hashable_string", *, shared: bool = False) -> pb.FilterStateValue:
    """Return a filter state with the value of `text`; a listener inside the proxy sees it too if it is `shared`."""
    sharing = pb.FilterStateValue.SharedWithUpstream
    return pb.FilterStateValue(
        object_key=key,
        factory_key=factory,
        format_string=pb.SubstitutionFormatString(text_format_source=pb.DataSource(inline_string=text)),
        shared_with_upstream=sharing.ONCE if shared else sharing.NONE,
    )
