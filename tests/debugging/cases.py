"""Questions to tf.debugging and to ours: expressions that mean the same in both.

`D` is the module, ``A(values, dtype)`` an array, `nan` and `inf` numbers, `S` a sparse array.
"""

from __future__ import annotations

from collections.abc import Iterator

SIGNS = ("positive", "negative", "non_negative", "non_positive")
PAIRS = ("equal", "none_equal", "less", "less_equal", "greater", "greater_equal")
FLOATS = ("float16", "bfloat16", "float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")


def cases() -> Iterator[tuple[str, str]]:
    """Group and code of every case."""
    for group, made in GROUPS.items():
        for code in made():
            yield group, code


def signs() -> Iterator[str]:
    values = {
        FLOATS: ("[1, 2]", "[0, 1]", "[-1, -0.5]", "[1, nan]", "[inf, 1]", "[-inf]", "-0.0", "[]"),
        SIGNED: ("[1, 2]", "[0]", "[-1, -2]", "[[0, 1], [-1, 2]]"),
        UNSIGNED: ("[1, 2]", "[0, 3]"),
        ("bool", "complex64"): ("[1, 0]", "[]"),
    }
    for check in SIGNS:
        for dtypes, tried in values.items():
            for dtype in dtypes:
                whole = dtype in {"float32", "bfloat16", "int32", "bool"}
                for value in tried if whole else tried[:3]:
                    yield f"D.assert_{check}(A({value}, '{dtype}'))"
        for value in (
            "3",
            "-2.5",
            "0",
            "True",
            "nan",
            "[1, 2]",
            "[[-1.0], [-2]]",
            "'a'",
            "['a']",
            "(1, 2)",
            "None",
            "{}",
        ):
            yield f"D.assert_{check}({value})"
        yield f"D.assert_{check}(A([1, -1], 'int32'), 'said', 0)"
        yield f"D.assert_{check}(A([1, -1], 'int32'), summarize=-1, message='said', name='n')"


def pairs() -> Iterator[str]:
    tried = [
        ("A([1, 2], 'int32')", "A([1, 2], 'int32')"),
        ("A([1, 2], 'int32')", "A([2, 3], 'int32')"),
        ("A([1, 2], 'int32')", "A([1, 3], 'int32')"),
        ("A([3, 2], 'int32')", "A([1, 1], 'int32')"),
        ("A([1, 2], 'int64')", "2"),
        ("2", "A([1, 2], 'int64')"),
        ("A([1, 2], 'uint8')", "3"),
        ("A([250], 'uint8')", "A([3], 'uint8')"),
        ("A([0.1], 'float32')", "0.1"),
        ("A([0.1], 'float32')", "[0.1]"),
        ("[0.1]", "A([0.1], 'float32')"),
        ("A([0.1], 'float64')", "0.1"),
        ("A([0.1], 'float16')", "A([0.1], 'float16')"),
        ("A([1, 2], 'bfloat16')", "A([1, 3], 'bfloat16')"),
        ("A([1, nan], 'float32')", "A([1, nan], 'float32')"),
        ("A([1, nan], 'float32')", "A([0, 0], 'float32')"),
        ("A([inf], 'float32')", "A([inf], 'float32')"),
        ("A([-inf, 1], 'float64')", "A([inf, 2], 'float64')"),
        ("A([0.0], 'float32')", "A([-0.0], 'float32')"),
        ("A([], 'float32')", "A([], 'float32')"),
        ("A([], 'float32')", "1.0"),
        ("A([], 'float32')", "A([1.0], 'float32')"),
        ("A([], 'float32')", "A([1.0, 2.0], 'float32')"),
        ("A([[1, 2], [3, 4]], 'int32')", "A([5, 6], 'int32')"),
        ("A([[1, 2], [3, 4]], 'int32')", "A([[1], [3]], 'int32')"),
        ("A([[1], [2]], 'int32')", "A([[1, 2, 3]], 'int32')"),
        ("A([1, 2, 3], 'int32')", "A([1, 2], 'int32')"),
        ("A([[1, 2]], 'int32')", "A([[1], [2], [3]], 'int32')"),
        ("A([True, False], 'bool')", "A([True, True], 'bool')"),
        ("A([1 + 2j], 'complex64')", "A([1 + 2j], 'complex64')"),
        ("A(['a', 'b'], 'string')", "A(['a', 'c'], 'string')"),
        ("'a'", "'a'"),
        ("'a'", "b'a'"),
        ("['a', 'b']", "'a'"),
        ("A([1], 'int32')", "A([1], 'int64')"),
        ("A([1], 'int32')", "A([1.0], 'float32')"),
        ("A([1], 'float32')", "A([2], 'float64')"),
        ("A([1], 'int32')", "1.5"),
        ("A([1], 'int32')", "'a'"),
        ("A([1.5], 'float32')", "1"),
        ("1", "1"),
        ("1", "2.5"),
        ("[1, 2]", "[1, 2]"),
        ("[[1, 2], [3, 4]]", "[2, 4]"),
        ("[1, 2]", "None"),
    ]
    for check in PAIRS:
        for x, y in tried:
            yield f"D.assert_{check}({x}, {y})"
        yield f"D.assert_{check}(A([1, 2], 'int32'), A([2, 2], 'int32'), message='said', summarize=1)"
        yield f"(lambda x: D.assert_{check}(x, x))(A([1, nan], 'float32'))"


def near() -> Iterator[str]:
    for dtype, eps in (
        ("float16", 2**-10),
        ("bfloat16", 2**-7),
        ("float32", 2**-23),
        ("float64", 2**-52),
    ):
        for times in (0, 1, 5, 19, 21, 40):
            yield f"D.assert_near(A([1 + {times * eps!r}], '{dtype}'), A([1], '{dtype}'))"
    yield from (
        "D.assert_near(A([1.0, 2.0], 'float32'), A([1.0, 2.5], 'float32'))",
        "D.assert_near(A([1.0], 'float32'), A([1.0], 'float32'), rtol=0, atol=0)",
        "D.assert_near(A([1.0], 'float32'), A([1.5], 'float32'), rtol=0.5, atol=0)",
        "D.assert_near(A([1.0], 'float32'), A([1.5], 'float32'), rtol=0.1, atol=0)",
        "D.assert_near(A([1.0], 'float32'), A([1.5], 'float32'), 0.0, 0.5)",
        "D.assert_near(A([1.0], 'float32'), A([1.5], 'float32'), 0.0, 0.51)",
        "D.assert_near(A([1.0, 2.0], 'float32'), A([1.5, 2.2], 'float32'), atol=A([1.0, 0.1], 'float32'))",
        "D.assert_near(A([1.0, 2.0], 'float32'), A([1.5, 2.2], 'float32'), atol=[1.0, 0.3])",
        "D.assert_near(A([nan], 'float32'), A([nan], 'float32'))",
        "D.assert_near(A([inf], 'float32'), A([inf], 'float32'))",
        "D.assert_near(A([inf], 'float32'), A([1], 'float32'))",
        "D.assert_near(A([1], 'float32'), A([inf], 'float32'))",
        "D.assert_near(A([], 'float32'), A([], 'float32'))",
        "D.assert_near(A([[1.0], [2.0]], 'float64'), A([1.0, 2.0], 'float64'), atol=2.0)",
        "D.assert_near(A([1.0, 2.0], 'float32'), A([1.0, 2.0, 3.0], 'float32'))",
        "D.assert_near(A([1], 'int32'), A([1], 'int32'))",
        "D.assert_near(1, 1)",
        "D.assert_near(1.0, 1)",
        "D.assert_near(1.0, 1.0)",
        "D.assert_near(1.0, 2.0)",
        "D.assert_near(0.1 + 0.2, 0.3)",
        "D.assert_near([0.1, 0.2], [0.1, 0.2])",
        "D.assert_near(A([1 + 2j], 'complex64'), A([1 + 2j], 'complex64'))",
        "D.assert_near(A([1 + 2j], 'complex64'), A([1 + 2.1j], 'complex64'))",
        "D.assert_near(A([1 + 2j], 'complex128'), A([1 + 2.1j], 'complex128'), atol=0.2)",
        "D.assert_near(A([1.0], 'float32'), A([1 + 2j], 'complex64'))",
        "D.assert_near(A([1.0], 'float32'), A([1.0], 'float64'))",
        "D.assert_near(A([1.0], 'float32'), 1)",
        "D.assert_near(A([1.0], 'float32'), [1])",
        "D.assert_near('a', 'a')",
        "D.assert_near(A([65504.0], 'float16'), A([-65504.0], 'float16'), atol=10)",
        "D.assert_near(A([1.0], 'float32'), A([2.0], 'float32'), message='said', summarize=2, name='n')",
    )  # fmt: skip


def ranks() -> Iterator[str]:
    shapes = ("3", "[1, 2]", "[[1, 2], [3, 4]]", "[]", "'a'", "['a']", "S", "(1, 2)")
    for x in shapes:
        for rank in (0, 1, 2):
            yield f"D.assert_rank({x}, {rank})"
            yield f"D.assert_rank_at_least({x}, {rank})"
        for ranks_ in ("(0, 1)", "[1, 2]", "()", "[2]"):
            yield f"D.assert_rank_in({x}, {ranks_})"
        yield f"D.assert_scalar({x})"
    for bad in ("[1]", "1.0", "-1", "'1'", "None", "True", "A(1, 'int32')", "A(1, 'int64')"):
        yield f"D.assert_rank([1], {bad})"
        yield f"D.assert_rank_at_least([1], {bad})"
        yield f"D.assert_rank_in([1], ({bad}, 1))"
    yield "D.assert_rank_in([1], 1)"
    yield "D.assert_rank([1], 2, 'said', 'n')"
    yield "D.assert_scalar([1], message='said', name='n')"


def shapes() -> Iterator[str]:
    arrays = "x, y, z, s, e = A([[1, 2, 3], [4, 5, 6]], 'int32'), A([1, 2, 3], 'float32'), A([7.0, 8.0], 'float64'), 5, A([[]], 'float32')"
    names = arrays.split(" = ", 1)
    for listed in (
        "[(x, ('N', 'D'))]", "[(x, ('N', 'N'))]", "[(x, ('N', 'D')), (y, ('D',))]",
        "[(x, ('N', 'D')), (y, ('N',))]", "[(x, ('N', 'D')), (z, ('N',))]", "[(x, (2, 3))]",
        "[(x, (3, 2))]", "[(x, (2, None))]", "[(x, (None, None))]", "[(x, ('.', 3))]",
        "[(x, ('.', 4))]", "[(x, ('*', 3))]", "[(x, (..., 3))]", "[(x, (..., 'D')), (y, ('D',))]",
        "[(x, (..., 'D')), (z, ('D',))]", "[(x, ('D', ...))]", "[(x, ('D', '*'))]",
        "[(x, ('*', 2, 3))]", "[(x, ('*', 1, 2, 3))]", "[(x, ('*', 'a', 'b', 'c'))]", "[(x, ('N',))]",
        "[(y, ('N', 'M'))]", "[(x, None)]", "[(x, None), (y, (3,))]", "[(s, ())]", "[(s, (1,))]",
        "[(s, ('N',))]", "[(s, (2,))]", "[(s, ('N',)), (y, ('N',))]", "[(y, ())]",
        "[(A([4], 'int32'), ())]", "[(A([4], 'int32'), ('N',)), (s, ('N',))]", "[(x, 'ND')]",
        "[(x, 'ND'), (y, 'D')]", "[(x, 'ND'), (y, 'N')]", "[(x, '23')]", "[(x, ['2', '3'])]",
        "[(x, ('2', '4'))]", "[(x, [2, 3])]", "[(x, 5)]", "[(x, 2.5)]", "[(x, (2.5, 3))]",
        "[(x, (2.0, 3))]", "[(x, (-1, 3))]", "[(e, ('N', 0))]", "[(e, ('N', 'D'))]", "[(e, (1, 0))]",
        "[(x, (...,))]", "[(y, ('*',))]", "[(s, ('*',))]", "[(x, ('*', '.'))]", "[(s, ('*', 'N'))]",
        "[(s, ('*', 'N', 'M'))]", "[(x, ())]", "[(x, ('N', 'D')), (x, ('D', 'N'))]",
        "[(x, (('a', 1), 'D')), (z, (('a', 1),))]", "[]", "{}", "{1: ()}", "{1.5: ('N',), 2: ('N',)}",
        "{1: (2,)}", "[(S, ('N', 'M'))]", "[(S, (3, 4))]", "[(S, (3, 5))]", "[(S, ('N',))]",
        "[('a', ())]", "[(['a', 'b'], ('N',)), (z, ('N',))]", "[([1, 2], (2,))]", "[([[1], [2]], ('N', 1))]",
        "[(x, (2, 3)), (y, (4,)), (z, (5,))]", "[(y, ('N',)), (y, ('N',)), (z, ('N',))]",
        "[(x, ('...', 3))]", "[(A([[[1]]], 'int32'), ('...', 1))]",
    ):  # fmt: skip
        yield f"(lambda {names[0]}: D.assert_shapes({listed}))({names[1]})"
    yield "D.assert_shapes([([1, 2], (3,))], data=['seen'], summarize=1, message='said', name='n')"


def dtypes() -> Iterator[str]:
    every = (*FLOATS, *SIGNED, *UNSIGNED, "bool", "complex64", "complex128")
    for dtype in every:
        yield f"D.assert_integer(A([1], '{dtype}'))"
        yield f"D.assert_type(A([1], '{dtype}'), '{dtype}')"
        yield f"D.assert_type(A([1], '{dtype}'), 'int32')"
        yield f"D.is_numeric_tensor(A([1], '{dtype}'))"
        yield f"D.assert_same_float_dtype([A([1], '{dtype}')])"
        yield f"D.assert_same_float_dtype(dtype=T('{dtype}'))"
        yield f"D.assert_same_float_dtype([A([1], '{dtype}'), A([1], 'float32')], T('float32'))"
    yield from (
        "D.assert_integer(1)", "D.assert_integer(1.5)", "D.assert_integer(True)", "D.assert_integer('a')",
        "D.assert_integer([1, 2])", "D.assert_integer([])", "D.assert_integer([1, 2.5])",
        "D.assert_integer(1.5, 'said', 'n')", "D.assert_integer(A(['a'], 'string'))",
        "D.assert_type('a', T('string'))", "D.assert_type(['a'], T('string'))", "D.assert_type(1, T('string'))",
        "D.assert_type(S, T('int32'))", "D.assert_type(S, T('float32'))", "D.assert_type(True, T('bool'))",
        "D.assert_type([1], T('bool'), message='said', name='n')", "D.assert_type(1, T('int32'))",
        "D.assert_type(1.5, T('float32'))", "D.assert_type(1.5, T('float64'))", "D.assert_type(1, None)",
        "D.is_numeric_tensor(A(['a'], 'string'))", "D.is_numeric_tensor(3)", "D.is_numeric_tensor('a')",
        "D.is_numeric_tensor([1])", "D.is_numeric_tensor(None)", "D.is_numeric_tensor(A([], 'float32'))",
        "D.assert_same_float_dtype()", "D.assert_same_float_dtype([])", "D.assert_same_float_dtype([None])",
        "D.assert_same_float_dtype([None, A([1], 'float64')])",
        "D.assert_same_float_dtype([A([1], 'float64'), A([1], 'float32')])",
        "D.assert_same_float_dtype([A([1], 'float64')], T('float32'))",
        "D.assert_same_float_dtype([A([1], 'float64')], T('float64'))",
        "D.assert_same_float_dtype(dtype=T('string'))",
    )  # fmt: skip
    for value in (
        "[1]",
        "(1,)",
        "{1}",
        "{'a': 1}",
        "iter([1])",
        "range(3)",
        "'a'",
        "b'a'",
        "A([1], 'int32')",
        "S",
        "3",
        "None",
        "[]",
    ):
        yield f"D.assert_proper_iterable({value})"


def conditions() -> Iterator[str]:
    yield from (
        "D.Assert(True, ['a'])", "D.Assert(False, ['a'])", "D.Assert(1 > 2, [1, 2])",
        "D.Assert(A(True, 'bool'), [1])", "D.Assert(A(False, 'bool'), [1])",
        "D.Assert(A([True], 'bool'), [1])", "D.Assert(A([False], 'bool'), [1])",
        "D.Assert(A([True, True], 'bool'), [1])", "D.Assert(A([], 'bool'), [1])", "D.Assert(False, [])",
        "D.Assert(False, [[1, 2, 3, 4], 'x'], 2, 'n')", "D.Assert(False, [A([1.0], 'float32')], summarize=-1)",
        "D.Assert(A(3, 'int32'), [1])", "D.Assert(A(0, 'int32'), [1])", "D.Assert(None, [1])",
    )  # fmt: skip


def numerics() -> Iterator[str]:
    for check in ("check_numerics", "assert_all_finite"):
        for dtype in (*FLOATS, "complex64", "complex128", "int32", "bool"):
            yield f"D.{check}(A([1, 0], '{dtype}'), 'said')"
            if dtype not in {"int32", "bool"}:
                yield f"D.{check}(A([1, nan], '{dtype}'), 'said')"
                yield f"D.{check}(A([[1], [inf]], '{dtype}'), 'said')"
                yield f"D.{check}(A(-inf, '{dtype}'), 'said')"
        for value in (
            "1.5",
            "nan",
            "[1.0, inf]",
            "[]",
            "3",
            "'a'",
            "A([], 'float32')",
            "A([1e38, 3e38], 'float32')",
        ):
            yield f"D.{check}({value}, 'said')"
        yield f"D.{check}(A([1.0], 'float32'))"
        yield f"D.{check}(A([nan], 'float32'), message='said', name='n')"
        yield f"D.{check}(A([complex(1, nan)], 'complex64'), 'said')"


GROUPS = {
    "signs": signs,
    "pairs": pairs,
    "near": near,
    "ranks": ranks,
    "shapes": shapes,
    "dtypes": dtypes,
    "conditions": conditions,
    "numerics": numerics,
}
