"""Reads GSM8K's calculator annotations, `<<16-3-4=9>>`, with exact arithmetic and nothing evaluated as code.

A solution as the data has it:

    Janet sells 16 - 3 - 4 = <<16-3-4=9>>9 duck eggs a day.
    She makes 9 * 2 = $<<9*2=18>>18 every day at the farmer's market.
    #### 18
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from numsft.evaluation.remap.rejection import Rejected

NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)"
_LITERAL = re.compile(rf"({NUMBER})(\s?%)?")
_ANNOTATION = re.compile(r"<<([^<>]*)>>")
_LONGEST = 200  # characters; a longer "expression" is prose or an attack on the parser


@dataclass(frozen=True)
class Expression:
    """An arithmetic expression whose literals are numbered from the left.

    Attributes:
        tree: Python's syntax tree, in which literal `i` is the name `x{i}`; only + - * / and signs.
        literals: The exact value of each; `40%` is 2/5.
    """

    tree: ast.expr
    literals: tuple[Fraction, ...]

    def evaluate(self, values: Sequence[Fraction] | None = None) -> Fraction:
        """Returns the exact value, with `values` in place of the literals where given.

        Raises:
            ZeroDivisionError: If a divisor is 0.
        """
        return self.nodes(values)[-1]

    def nodes(self, values: Sequence[Fraction] | None = None) -> list[Fraction]:
        """Returns the value of every sub-expression, innermost first and the whole last."""
        seen: list[Fraction] = []
        _evaluate(self.tree, self.literals if values is None else values, seen)
        return seen

    def operations(self) -> int:
        """Returns how many of + - * / there are."""
        return sum(isinstance(node, ast.BinOp) for node in ast.walk(self.tree))


@dataclass(frozen=True)
class Step:
    """One annotation: its expression, the value the data gives, and the words before it on its line."""

    expression: Expression
    value: Fraction
    prose: str


def parse_number(text: str) -> Fraction:
    """Returns the exact value of a number of the form of `NUMBER`."""
    text = text.replace(",", "")
    return Fraction(text + "0" if text.endswith(".") else text)


def parse_expression(text: str) -> Expression:
    """Parses `text`, which may hold numbers, %, + - * / and parentheses.

    Raises:
        Rejected: With the reason `unreadable annotation` for anything else.
    """
    literals: list[Fraction] = []

    def name(match: re.Match[str]) -> str:
        literals.append(parse_number(match[1]) / (100 if match[2] else 1))
        return f" x{len(literals) - 1} "

    named = _LITERAL.sub(name, text) if len(text) <= _LONGEST else ""
    try:
        tree = ast.parse(named.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise Rejected("unreadable annotation", text[:40]) from error
    allowed = (ast.BinOp, ast.UnaryOp, ast.Name, ast.Load, ast.operator, ast.unaryop)
    operators = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.USub, ast.UAdd)
    for node in ast.walk(tree):
        is_operator = isinstance(node, (ast.operator, ast.unaryop))
        unknown = isinstance(node, ast.Name) and not re.fullmatch(r"x\d+", node.id)
        if not isinstance(node, allowed) or (is_operator and not isinstance(node, operators)) or unknown:
            raise Rejected("unreadable annotation", text[:40])
    if re.search(r"[A-Za-z_]", text):  # a name of the text itself could pass for one of ours
        raise Rejected("unreadable annotation", text[:40])
    return Expression(tree, tuple(literals))


def parse_solution(answer: str) -> tuple[tuple[Step, ...], Fraction]:
    """Returns the steps and the gold answer of a GSM8K solution, every step checked exactly.

    Raises:
        Rejected: If there is no annotation, one cannot be read, its value is not exactly that of its
            expression (a rounded one too), or the last step's value is not the gold answer.
    """
    solution, mark, gold_text = answer.rpartition("####")
    if not mark or not re.fullmatch(rf"-?{NUMBER}", gold_text.strip()):
        raise Rejected("unreadable answer", gold_text.strip()[:40])
    gold_text = gold_text.strip()
    gold = -parse_number(gold_text[1:]) if gold_text.startswith("-") else parse_number(gold_text)
    steps = []
    for line in solution.split("\n"):
        end = 0
        for match in _ANNOTATION.finditer(line):
            left, equals, right = match[1].rpartition("=")
            if not equals:
                raise Rejected("unreadable annotation", match[1][:40])
            expression, value = parse_expression(left), parse_expression(right).evaluate()
            try:
                exact = expression.evaluate()
            except ZeroDivisionError as error:
                raise Rejected("inexact step", match[1][:40]) from error
            if exact != value:
                raise Rejected("inexact step", match[1][:40])
            steps.append(Step(expression, value, line[end : match.start()]))
            end = match.end()
    if not steps:
        raise Rejected("no annotation")
    if steps[-1].value != gold:
        raise Rejected("last step is not the answer", f"{steps[-1].value} and {gold}")
    return tuple(steps), gold


def _evaluate(node: ast.expr, values: Sequence[Fraction], seen: list[Fraction]) -> Fraction:
    if isinstance(node, ast.Name):
        result = values[int(node.id[1:])]
    elif isinstance(node, ast.UnaryOp):
        operand = _evaluate(node.operand, values, seen)
        result = -operand if isinstance(node.op, ast.USub) else operand
    else:
        assert isinstance(node, ast.BinOp)
        left, right = _evaluate(node.left, values, seen), _evaluate(node.right, values, seen)
        if isinstance(node.op, ast.Add):
            result = left + right
        elif isinstance(node.op, ast.Sub):
            result = left - right
        elif isinstance(node.op, ast.Mult):
            result = left * right
        else:
            result = left / right
    seen.append(result)
    return result
