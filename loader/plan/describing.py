"""A plan in one line, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tundish.loader.plan.node import Node


def one_line(node: Node) -> str:
    """Return ``range(stop=10) -> batch(size=4)``."""
    return " -> ".join(describe(each) for each in main_line(node))


def main_line(node: Node) -> list[Node]:
    """Return the chain of nodes that ends here, up to its source or to a node with several inputs."""
    line = [node]
    while len(line[-1].inputs) == 1:
        line.append(line[-1].inputs[0])
    return line[::-1]


def show_params(node: Node) -> str:
    """A node's arguments in one line."""
    parts = []
    for key, value in node.params().items():
        shown = value["function"] if isinstance(value, dict) and "function" in value else value
        parts.append(f"{key}={shown}")
    return ", ".join(parts)


def describe(node: Node) -> str:
    """``batch(size=4)``, and for a join what it joins."""
    if len(node.inputs) > 1:
        ups = ", ".join(" -> ".join(map(describe, main_line(up))) for up in node.inputs)
        return f"{node.label}[{ups}]"
    return f"{node.label}({show_params(node)})"
