"""Remove the headers of requests that no client may send to an application (`model.sanitizing`), at every listener."""

from headgate.envoy import pb
from headgate.model.sanitizing import RESERVED

_NAME = "headgate.reserved_headers"


def remove_reserved(connection: pb.HttpConnectionManager, names: str = RESERVED) -> None:
    """Make a connection manager remove the headers whose names match, before Envoy or another mutation reads or sets them."""
    # The anchor lets RE2 reject a name by its first letter, although Envoy compares whole names anyway.
    matcher = pb.StringMatcher(safe_regex=pb.RegexMatcher(regex=f"^{names}"))
    rule = pb.HeaderMutationRule(remove_on_match=pb.HeaderMutationRule.RemoveOnMatch(key_matcher=matcher))
    removal = pb.TypedExtensionConfig(name=_NAME, typed_config=pb.pack(pb.EarlyHeaderMutation(mutations=[rule])))
    connection.early_header_mutation_extensions.insert(0, removal)
