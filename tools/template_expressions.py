"""Template expressions of Helm in YAML texts, as tools/chart.py writes them."""

import re


class Expressions:
    """Template expressions by their token in a YAML text; YAML would quote the expressions, but not the tokens."""

    def __init__(self) -> None:
        self._by_token: dict[str, str] = {}

    def token(self, expression: str) -> str:
        """Return the token of an expression that prints one scalar."""
        name = f"token{len(self._by_token):03d}x"
        self._by_token[name] = expression
        return name

    def block(self, value: str) -> str:
        """Return the token of a map or list that the user sets. If it is empty, the field is omitted."""
        return self.token(f"block {value}")

    def render(self, text: str) -> str:
        """Return the text with an expression in place of each token."""
        return re.sub(
            r"token\d{3}x",
            lambda match: self._by_token[match[0]],
            re.sub(r"^( *)(\w+): (token\d{3}x)$", self._field, text, flags=re.MULTILINE),
        )

    def _field(self, match: re.Match[str]) -> str:
        indent, name, token = match.groups()
        kind, _, value = self._by_token[token].partition(" ")
        if kind != "block":
            return match[0]
        content = f"{indent}{name}:\n{indent}  {{{{- toYaml . | nindent {len(indent) + 2} }}}}\n"
        return f"{indent}{{{{- with {value} }}}}\n{content}{indent}{{{{- end }}}}"
