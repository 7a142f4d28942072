"""Random worlds that differ in a few objects, for plans of the changes between them."""

from hypothesis import strategies as st
from tests.differential.lab import Objects
from tests.differential.worlds import edge_worlds, root_worlds, worlds

ANY_WORLD = st.one_of(worlds(), root_worlds(), edge_worlds())


@st.composite
def variations(draw: st.DrawFn, world: Objects, kind: st.SearchStrategy[Objects]) -> Objects:
    """Return another world: often a world with some changed, new and deleted objects, else a new one."""
    other = draw(kind)
    if not draw(st.integers(0, 3)):
        return other
    kept = {key: obj for key, obj in world.items() if draw(st.integers(0, 7))}
    return {**kept, **{key: obj for key, obj in other.items() if not draw(st.integers(0, 5))}}


@st.composite
def families(draw: st.DrawFn, kind: st.SearchStrategy[Objects], size: int = 3) -> list[Objects]:
    """Return a world and variations of it: three worlds have six ordered pairs."""
    world = draw(kind)
    return [world, *(draw(variations(world, kind)) for _ in range(size - 1))]
