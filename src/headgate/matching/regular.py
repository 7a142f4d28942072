"""Regular expressions with derivatives, and the search for a text that fits some expressions and no unwanted one.

A derivative of an expression by a character is an expression for the rest of the texts that begin with this character
(Brzozowski; Owens, Reppy and Turon, "Regular-expression derivatives re-examined"). So intersections and complements need
no automata: a search over derivatives finds the shortest text, or proves that there is none. The alphabet is ASCII; a
set of characters is the sum of the bits `1 << code`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headgate.matching.undecided import Work

ALPHABET = (1 << 128) - 1
WORD = sum(1 << ord(letter) for letter in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
PREFERRED = "abcdefghijklmnopqrstuvwxyz0123456789-./_"
OUTSIDE, IN_WORD, NOT_IN_WORD = 0, 1, 2
"""What is next to a position: the beginning or end of the text, a word character, or another character."""
EMPTY, EPSILON, CHARS, JOIN, ANY_OF, REPEAT, EDGE = range(7)


class Expression:
    """An expression. The nodes of an `Algebra` are equal if and only if they are the same object.

    `mask` has the characters of CHARS, `edge` is the assertion of EDGE. A REPEAT has `least` to `most` texts of its part.
    """

    __slots__ = ("edge", "kind", "least", "mask", "most", "number", "parts")

    def __init__(self, number: int, content: "_Content") -> None:
        self.number = number
        self.kind, self.parts, self.mask, self.least, self.most, self.edge = content


class _Content(NamedTuple):
    kind: int
    parts: tuple[Expression, ...] = ()
    mask: int = 0
    least: int = 0
    most: int | None = None
    edge: str = ""


class TextPosition(NamedTuple):
    """A position in a text, by what is before and after it."""

    before: int
    after: int


class Algebra:
    """Builds expressions in a normal form, so that each expression has finitely many derivatives.

    It remembers all expressions and derivatives, so it should be used for one comparison only.
    """

    def __init__(self) -> None:
        self._nodes: dict[_Content, Expression] = {}
        self._derivatives: dict[tuple[Expression, int, int], Expression] = {}
        self._nullable: dict[tuple[Expression, int, int], bool] = {}
        self.empty, self.epsilon = self._node(_Content(EMPTY)), self._node(_Content(EPSILON))
        self.everything = self.repeat(self.chars(ALPHABET), 0, None)

    def _node(self, content: _Content) -> Expression:
        node = self._nodes.get(content)
        if node is None:
            node = self._nodes[content] = Expression(len(self._nodes), content)
        return node

    def chars(self, mask: int) -> Expression:
        """Return the expression for one of some characters."""
        return self._node(_Content(CHARS, mask=mask)) if mask else self.empty

    def text(self, text: str) -> Expression:
        """Return the expression for a text; for a text outside the alphabet, it matches nothing."""
        expression = self.epsilon
        for character in reversed(text):
            expression = self.join(self.chars(1 << ord(character) if ord(character) < 128 else 0), expression)
        return expression

    def edge(self, kind: str) -> Expression:
        """Return the expression for an assertion: `^`, `$`, `b` (a word boundary) or `B`."""
        return self._node(_Content(EDGE, edge=kind))

    def join(self, first: Expression, second: Expression) -> Expression:
        """Return the expression for a text of `first` followed by a text of `second`."""
        if self.empty in (first, second):
            return self.empty
        if first is self.epsilon:
            return second
        if second is self.epsilon:
            return first
        if first.kind == JOIN:
            head, tail = first.parts
            return self.join(head, self.join(tail, second))
        return self._node(_Content(JOIN, (first, second)))

    def any_of(self, items: Iterable[Expression]) -> Expression:
        """Return the expression for texts that fit at least one expression."""
        mask, alternatives = 0, set[Expression]()
        for expression in items:
            for part in _alternatives(expression):
                if part.kind == CHARS:
                    mask |= part.mask
                elif part is not self.empty:
                    alternatives.add(part)
        if self.everything in alternatives:
            return self.everything
        if mask:
            alternatives.add(self.chars(mask))
        if len(alternatives) < 2:
            return next(iter(alternatives), self.empty)
        return self._node(_Content(ANY_OF, tuple(sorted(alternatives, key=lambda part: part.number))))

    def repeat(self, expression: Expression, least: int, most: int | None) -> Expression:
        """Return the expression for `least` to `most` texts of an expression; None is no limit."""
        if most == 0 or expression is self.epsilon:
            return self.epsilon
        if expression is self.empty:
            return self.empty if least else self.epsilon
        if (least, most) == (1, 1):
            return expression
        return self._node(_Content(REPEAT, (expression,), least=least, most=most))

    def derivative(self, node: Expression, char: int, before: int) -> Expression:
        """Return the expression for the rest of the texts that begin with a character; `before` is what precedes it."""
        key = node, char, before
        derived = self._derivatives.get(key)
        if derived is None:
            derived = self._derivatives[key] = self._derivative(node, char, before)
        return derived

    def _derivative(self, node: Expression, char: int, before: int) -> Expression:
        if node.kind == CHARS:
            return self.epsilon if node.mask >> char & 1 else self.empty
        if node.kind == JOIN:
            head, tail = node.parts
            derived = self.join(self.derivative(head, char, before), tail)
            if self.nullable(head, TextPosition(before, side_of(char))):
                derived = self.any_of((derived, self.derivative(tail, char, before)))
            return derived
        if node.kind == ANY_OF:
            return self.any_of([self.derivative(part, char, before) for part in node.parts])
        if node.kind == REPEAT:
            (repeated,), least, most = node.parts, node.least, node.most
            if self.nullable(repeated, TextPosition(before, side_of(char))):
                least = 0  # the other repetitions match the empty text here
            rest = self.repeat(repeated, max(least - 1, 0), None if most is None else most - 1)
            return self.join(self.derivative(repeated, char, before), rest)
        return self.empty

    def nullable(self, node: Expression, place: TextPosition) -> bool:
        """Return whether an expression matches the empty text at a position."""
        key = node, *place
        is_nullable = self._nullable.get(key)
        if is_nullable is None:
            is_nullable = self._nullable[key] = self._is_nullable(node, place)
        return is_nullable

    def _is_nullable(self, node: Expression, place: TextPosition) -> bool:
        if node.kind == JOIN:
            return all(self.nullable(part, place) for part in node.parts)
        if node.kind == ANY_OF:
            return any(self.nullable(part, place) for part in node.parts)
        if node.kind == REPEAT:
            return not node.least or self.nullable(node.parts[0], place)
        if node.kind == EDGE:
            return _holds(node.edge, place)
        return node.kind == EPSILON


def side_of(char: int) -> int:
    """Return what a character is for the assertions next to it."""
    return IN_WORD if WORD >> char & 1 else NOT_IN_WORD


def _holds(edge: str, place: TextPosition) -> bool:
    if edge == "^":
        return place.before == OUTSIDE
    if edge == "$":
        return place.after == OUTSIDE
    return ((place.before == IN_WORD) != (place.after == IN_WORD)) == (edge == "b")


def _alternatives(node: Expression) -> tuple[Expression, ...]:
    return node.parts if node.kind == ANY_OF else (node,)


def _masks(node: Expression) -> Iterator[int]:
    if node.kind == CHARS:
        yield node.mask
    for part in node.parts:
        yield from _masks(part)


def representatives(nodes: Iterable[Expression]) -> list[int]:
    """Return one character for each class of characters that no expression distinguishes, readable ones first."""
    classes = [ALPHABET]
    for mask in {WORD, *(mask for node in nodes for mask in _masks(node))}:
        classes = [part for chars in classes for part in (chars & mask, chars & ~mask) if part]
    return sorted((_readable(chars) for chars in classes), key=_ORDER.index)


def _readable(mask: int) -> int:
    return next(code for code in _ORDER if mask >> code & 1)


_ORDER = [*map(ord, PREFERRED), *(code for code in range(128) if chr(code) not in PREFERRED)]


def looks_like(node: Expression) -> str:
    """Return a text of an expression with the fewest repetitions, without regard to its assertions about edges."""
    text = ""
    while node.kind == JOIN:  # the tail of a join can be long, its head is one item
        head, node = node.parts
        text += looks_like(head)
    if node.kind == CHARS:
        return text + chr(_readable(node.mask))
    if node.kind == ANY_OF:
        return text + looks_like(node.parts[0])
    return text + looks_like(node.parts[0]) * node.least if node.kind == REPEAT else text


def find_text(
    algebra: Algebra, required: Sequence[Expression], unwanted: Sequence[Expression], work: Work
) -> str | None:
    """Return a shortest text that all expressions `required` match and no expression `unwanted` matches; None if none exists.

    Each derivative is a step. Raises Exhausted if there are not enough steps.
    """
    characters = representatives((*required, *unwanted))
    start = tuple(required), frozenset(unwanted), OUTSIDE
    seen, queue = {start}, [(start, "")]
    for (inside, outside, before), text in queue:  # the loop extends the queue
        end = TextPosition(before, OUTSIDE)
        if all(algebra.nullable(node, end) for node in inside) and not any(
            algebra.nullable(node, end) for node in outside
        ):
            return text
        for char in characters:
            work.spend(len(inside) + len(outside))
            following = tuple(algebra.derivative(node, char, before) for node in inside)
            excluded = frozenset(algebra.derivative(node, char, before) for node in outside) - {algebra.empty}
            state = following, excluded, side_of(char)
            if algebra.empty not in following and algebra.everything not in excluded and state not in seen:
                seen.add(state)
                queue.append((state, text + chr(char)))
    return None
