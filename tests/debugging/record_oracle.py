"""Record what tf.debugging does in the cases, and its signatures.

    python tests/debugging/record_oracle.py

Needs ``tensorflow-cpu`` (recorded with 2.21.0); nothing of tundish is run. Writes ``oracle.json``
beside itself: results only.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))  # started by its path: the tests are a package of the root

from tests.debugging.cases import cases  # noqa: E402 - needs the path


def names(tf: Any) -> dict[str, Any]:
    """Return the names that the expressions use, for tensorflow."""

    def array(values: Any, dtype: str) -> Any:
        if dtype == "bool":
            return tf.cast(values, tf.bool)
        return tf.constant(values, tf.as_dtype(dtype))

    return {
        "D": tf.debugging,
        "A": array,
        "T": tf.as_dtype,
        "S": tf.sparse.from_dense([[0, 0, 1, 0], [0, 0, 0, 0], [2, 0, 0, 0]]),
        "nan": float("nan"),
        "inf": float("inf"),
    }


def outcome(code: str, known: dict[str, Any]) -> dict[str, Any]:
    """Return what an expression gives: a bool or a dtype; "ok" for all else; or its error's type."""
    try:
        value = eval(code, dict(known))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
        return {"error": type(error).__name__}
    if isinstance(value, bool):
        return {"value": value}
    return {"value": value.name if hasattr(value, "as_numpy_dtype") else "ok"}


def signature(function: Any) -> list[list[Any]]:
    """Names and defaults of the parameters, "..." where there is none."""
    parameters = inspect.signature(function).parameters.values()
    return [[p.name, "..." if p.default is p.empty else p.default] for p in parameters]


def main() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    public = {n: getattr(tf.debugging, n) for n in dir(tf.debugging) if not n.startswith("_")}
    signatures = {name: signature(f) for name, f in public.items() if callable(f)}
    known = names(tf)
    rows = [
        json.dumps({"group": group, "code": code, **outcome(code, known)})
        for group, code in cases()
    ]
    text = f'{{"tensorflow": "{tf.__version__}",\n"signatures": {json.dumps(signatures)},\n"cases": [\n'
    Path(HERE / "oracle.json").write_text(text + ",\n".join(rows) + "\n]}\n", encoding="utf-8")
    sys.stdout.write(f"{len(rows)} cases\n")


if __name__ == "__main__":
    main()
