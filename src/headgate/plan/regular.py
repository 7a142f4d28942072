"""Regular expressions with derivatives, and the search for a text that fits some expressions and no unwanted one.

A derivative of an expression by a character is an expression for the rest of the texts that begin with this character
(Brzozowski; Owens, Reppy and Turon, "Regular-expression derivatives re-examined"). So intersections and complements need
no automata: a search over derivatives finds the shortest text, or proves that there is none. The alphabet is ASCII; a
set of characters is the sum of the bits `1 << code`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headgate.plan.undecided import Undecided

ALPHABET = (1 << 128) - 1
WORD = sum(1 << ord(item) for item in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
PREFERRED = "abcdefghijklmnopqrstuvwxyz0123456789-./_"
OUTSIDE, IN_WORD, NOT_IN_WORD = 0, 1, 2
"""What is next to a position: the beginning or end of the text, a word character, or another character."""
EMPTY, EPSILON, CHARS, JOIN, ANY_OF, REPEAT, EDGE = range(7)


class Node:
    """An expression. The nodes of an `Algebra` are equal if and only if they are the same object."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: int, parts: tuple[object, ...]) -> None:
        self.kind = kind
        self.parts = parts


class Place(NamedTuple):
    """A position in a text, by what is before and after it."""

    before: int
    after: int


class Algebra:
    """Builds expressions in a normal form, so that each expression has finitely many derivatives.

    It remembers all expressions and derivatives, so it should be used for one comparison only.
    """

    def __init__(self) -> None:
        self._nodes: dict[tuple[object, ...], Node] = {}
        self._derivatives: dict[tuple[Node, int, int], Node] = {}
        self._nullable: dict[tuple[Node, int, int], bool] = {}
        self.empty, self.epsilon = self._node(EMPTY), self._node(EPSILON)
        self.everything = self._node(REPEAT, self.chars(ALPHABET), 0, None)

    def _node(self, kind: int, *parts: object) -> Node:
        return self._nodes.setdefault((kind, *parts), Node(kind, parts))

    def chars(self, mask: int) -> Node:
        """Return the expression for one of some characters."""
        return self._node(CHARS, mask) if mask else self.empty

    def text(self, text: str) -> Node:
        """Return the expression for a text; for a text outside the alphabet, it matches nothing."""
        found = self.epsilon
        for item in reversed(text):
            found = self.join(self.chars(1 << ord(item) if ord(item) < 128 else 0), found)
        return found

    def edge(self, kind: str) -> Node:
        """Return the expression for an assertion: `^`, `$`, `b` (a word boundary) or `B`."""
        return self._node(EDGE, kind)

    def join(self, first: Node, second: Node) -> Node:
        """Return the expression for a text of `first` followed by a text of `second`."""
        if self.empty in (first, second):
            return self.empty
        if first is self.epsilon:
            return second
        if second is self.epsilon:
            return first
        if first.kind == JOIN:
            head, tail = _pair(first)
            return self.join(head, self.join(tail, second))
        return self._node(JOIN, first, second)

    def any_of(self, items: Iterable[Node]) -> Node:
        """Return the expression for a text of any of some expressions."""
        mask, found = 0, set[Node]()
        for item in items:
            for part in _alternatives(item):
                if part.kind == CHARS:
                    mask |= _mask(part)
                elif part is not self.empty:
                    found.add(part)
        if self.everything in found:
            return self.everything
        if mask:
            found.add(self.chars(mask))
        if len(found) < 2:
            return next(iter(found), self.empty)
        return self._node(ANY_OF, frozenset(found))

    def repeat(self, item: Node, least: int, most: int | None) -> Node:
        """Return the expression for `least` to `most` texts of an expression; None is no limit."""
        if most == 0 or item is self.epsilon:
            return self.epsilon
        if item is self.empty:
            return self.empty if least else self.epsilon
        if (least, most) == (1, 1):
            return item
        return self._node(REPEAT, item, least, most)

    def derivative(self, node: Node, char: int, before: int) -> Node:
        """Return the expression for the rest of the texts that begin with a character; `before` is what precedes it."""
        key = node, char, before
        found = self._derivatives.get(key)
        if found is None:
            found = self._derivatives[key] = self._derivative(node, char, before)
        return found

    def _derivative(self, node: Node, char: int, before: int) -> Node:
        if node.kind == CHARS:
            return self.epsilon if _mask(node) >> char & 1 else self.empty
        if node.kind == JOIN:
            head, tail = _pair(node)
            found = self.join(self.derivative(head, char, before), tail)
            if self.nullable(head, Place(before, side_of(char))):
                found = self.any_of((found, self.derivative(tail, char, before)))
            return found
        if node.kind == ANY_OF:
            return self.any_of([self.derivative(part, char, before) for part in _alternatives(node)])
        if node.kind == REPEAT:
            item, least, most = _repetition(node)
            if self.nullable(item, Place(before, side_of(char))):
                least = 0  # the other repetitions match the empty text here
            rest = self.repeat(item, max(least - 1, 0), None if most is None else most - 1)
            return self.join(self.derivative(item, char, before), rest)
        return self.empty

    def nullable(self, node: Node, place: Place) -> bool:
        """Say whether an expression matches the empty text at a position."""
        key = node, *place
        found = self._nullable.get(key)
        if found is None:
            found = self._nullable[key] = self._is_nullable(node, place)
        return found

    def _is_nullable(self, node: Node, place: Place) -> bool:
        if node.kind == JOIN:
            return all(self.nullable(part, place) for part in _pair(node))
        if node.kind == ANY_OF:
            return any(self.nullable(part, place) for part in _alternatives(node))
        if node.kind == REPEAT:
            item, least, _ = _repetition(node)
            return not least or self.nullable(item, place)
        if node.kind == EDGE:
            return _holds(str(node.parts[0]), place)
        return node.kind == EPSILON


def side_of(char: int) -> int:
    """Return what a character is for the assertions next to it."""
    return IN_WORD if WORD >> char & 1 else NOT_IN_WORD


def _holds(edge: str, place: Place) -> bool:
    if edge == "^":
        return place.before == OUTSIDE
    if edge == "$":
        return place.after == OUTSIDE
    return ((place.before == IN_WORD) != (place.after == IN_WORD)) == (edge == "b")


def _mask(node: Node) -> int:
    mask = node.parts[0]
    assert isinstance(mask, int)  # noqa: S101  # the part of CHARS
    return mask


def _pair(node: Node) -> tuple[Node, Node]:
    head, tail = node.parts
    assert isinstance(head, Node)  # noqa: S101  # the parts of JOIN
    assert isinstance(tail, Node)  # noqa: S101
    return head, tail


def _alternatives(node: Node) -> Iterable[Node]:
    parts = node.parts[0] if node.kind == ANY_OF else (node,)
    assert isinstance(parts, frozenset | tuple)  # noqa: S101  # the part of ANY_OF
    return parts


def _repetition(node: Node) -> tuple[Node, int, int | None]:
    item, least, most = node.parts
    assert isinstance(item, Node)  # noqa: S101  # the parts of REPEAT
    assert isinstance(least, int)  # noqa: S101
    assert most is None or isinstance(most, int)  # noqa: S101
    return item, least, most


def _masks(node: Node) -> Iterator[int]:
    if node.kind == CHARS:
        yield _mask(node)
    for part in _alternatives(node) if node.kind == ANY_OF else node.parts:
        if isinstance(part, Node):
            yield from _masks(part)


def representatives(nodes: Iterable[Node]) -> list[int]:
    """Return one character for each class of characters that no expression distinguishes, readable ones first."""
    classes = [ALPHABET]
    for mask in {WORD, *(mask for node in nodes for mask in _masks(node))}:
        classes = [part for item in classes for part in (item & mask, item & ~mask) if part]
    return sorted((_readable(item) for item in classes), key=_ORDER.index)


def _readable(mask: int) -> int:
    return next(code for code in _ORDER if mask >> code & 1)


_ORDER = [*map(ord, PREFERRED), *(code for code in range(128) if chr(code) not in PREFERRED)]


def find_text(algebra: Algebra, wanted: Sequence[Node], unwanted: Sequence[Node], *, steps: int) -> str | None:
    """Return a shortest text that all expressions `wanted` match and no expression `unwanted` matches; None if none exists.

    Raises Undecided after `steps` derivatives.
    """
    characters = representatives((*wanted, *unwanted))
    start = tuple(wanted), frozenset(unwanted), OUTSIDE
    seen, queue = {start}, [(start, "")]
    for (inside, outside, before), text in queue:  # the loop extends the queue
        end = Place(before, OUTSIDE)
        if all(algebra.nullable(node, end) for node in inside) and not any(
            algebra.nullable(node, end) for node in outside
        ):
            return text
        for char in characters:
            steps -= len(inside) + len(outside)
            if steps < 0:
                raise Undecided
            following = tuple(algebra.derivative(node, char, before) for node in inside)
            excluded = frozenset(algebra.derivative(node, char, before) for node in outside) - {algebra.empty}
            state = following, excluded, side_of(char)
            if algebra.empty not in following and algebra.everything not in excluded and state not in seen:
                seen.add(state)
                queue.append((state, text + chr(char)))
    return None
