"""Tables of machines, by the type of the node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tundish.loader.protocols.operator import Builder, Machine

MakeMachine = Callable[[Builder, Any, int], Machine]
"""``make(builder, node, pass)``: the machine of a node of some type."""
