"""Helpful errors for wrong calls and unknown names of public classes."""

from __future__ import annotations

import functools
import inspect
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from tundish.tracebacks import hide_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


_ALIKE = tuple(
    frozenset(words.split())
    for words in (
        # Arguments, as tf.data, torch, Grain, Hugging Face, Ray and others call them.
        "num_parallel_calls num_parallel_reads num_workers workers n_jobs num_proc max_workers concurrency",
        "batch_size size count n bs length",
        "buffer_size buffer prefetch_factor capacity bufsize window",
        "drop_remainder drop_last drop_last_batch",
        "map_func predicate scan_func reduce_func fn func function f transform callable",
        "filenames file_names files paths path file_pattern data_files urls url",
        "seed random_state random_seed rng generator",
        "num_shards num_replicas world_size shard_count num_processes",
        "index rank shard_index shard_id process_index",
        "compression_type compression codec",
        "on_error handler ignore_errors errors error_handler",
        "deterministic ordered in_order sloppy preserve_order",
        "padding_values padding_value pad_value fill_value pad",
        "padded_shapes pad_shape shapes max_length",
        "reshuffle_each_iteration reshuffle reshuffle_each_epoch",
        "output_signature signature features output_types output_shapes schema",
        "worker_init worker_init_fn worker_init_func initializer",
        "collate_fn collate collator",
        "memory_budget memory max_memory memory_limit",
        "deadline timeout",
        "tensors data arrays values elements source",
        # Methods.
        "map random_map transform",
        "filter select where",
        "batch collate to_batches",
        "take head limit islice",
        "skip drop",
        "shard split_by_node split_by_worker split",
        "sample_from_datasets mix interleave_datasets",
        "concatenate concat concatenate_datasets chain",
        "unbatch flatten explode",
        "as_numpy_iterator to_iter_dataset iter_batches iter_rows to_numpy",
        "from_tensor_slices from_dict from_numpy from_arrays",
        "from_generator from_iterable from_iterator",
        "prefetch mp_prefetch",
        "snapshot materialize save_to_disk",
        "cache in_memory_cache persist",
        "enumerate with_index map_with_index",
        "element_spec schema features dtypes",
        "cardinality num_rows num_elements",
        "apply pipe",
    )
)
_ELSEWHERE = {
    "batched": "map_batches(function, batch_size) calls a function with batches",
    "with_indices": "enumerate() before it numbers the elements",
    "remove_columns": "the function returns what is wanted of an element",
}


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a hint for the end of an error, ``"; did you mean shuffle?"``; "" if no name is similar.

    Parameters
    ----------
    name : str
        The unknown name.
    names : iterable of str
        The known names.

    Examples
    --------
    >>> did_you_mean("suffle", ["shuffle", "take"])
    '; did you mean shuffle?'
    >>> did_you_mean("num_workers", ["map_func", "num_parallel_calls"])
    '; did you mean num_parallel_calls?'
    """
    if name.startswith("_"):  # something looks for a protocol
        return ""
    import difflib  # noqa: PLC0415 - only where an error is made; this module costs every process

    known = list(names)
    same = {word for words in _ALIKE if name in words for word in words}
    meant = [each for each in known if each in same] or difflib.get_close_matches(name, known, n=1)
    if meant:
        return f"; did you mean {' or '.join(meant)}?"
    return f"; {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""


T = TypeVar("T")
C = TypeVar("C", bound=type)


def check_is(value: Any, kind: type[T] | tuple[type[Any], ...], demand: str) -> T:
    """Check an argument's type; the error ends with the type it has.

    Parameters
    ----------
    value : object
        The argument, which is returned.
    kind : type or tuple of type
        The allowed types.
    demand : str
        The beginning of the error: ``"size must be an int"``.

    Raises
    ------
    TypeError
        The argument has another type.

    Examples
    --------
    >>> check_is(None, str, "query must be a str")
    Traceback (most recent call last):
    TypeError: query must be a str, not NoneType (None)
    """
    if not isinstance(value, kind):
        raise TypeError(f"{demand}, not {type(value).__name__} ({value!r})")
    return value


def answering(cls: C) -> C:
    """Decorate a class so that its constructor and public methods explain wrong calls.

    An unknown argument gets a suggestion, and tracebacks end at the method that was called.
    Inherited methods are covered, too, without changing the base classes.

    Parameters
    ----------
    cls : type
        The class, which is changed.
    """
    for name in dir(cls):
        if not name.startswith("_") or (name == "__init__" and name in vars(cls)):
            owner = next(base for base in cls.__mro__ if name in vars(base))
            found = vars(owner)[name]
            if isinstance(found, (FunctionType, classmethod, staticmethod)):
                setattr(cls, name, answered(found, cls))
    return cls


def answered(method: Any, cls: type) -> Any:
    """Wrap a method so that it explains wrong calls.

    Parameters
    ----------
    method : function, classmethod or staticmethod
        The method.
    cls : type
        The class on which it is called.
    """
    if isinstance(method, (classmethod, staticmethod)):
        return type(method)(answered(method.__func__, cls))
    if hasattr(method, "__wrapped__"):  # of a class above: it is answered for
        return method
    function, kind, tell = method, Exception, _tell

    def call(*args: Any, **given: Any) -> Any:
        try:
            return function(*args, **given)
        except kind as error:
            tell(error, function, cls, given)
            raise

    # It shows in tracebacks, and to those who look at functions, as what it calls.
    code = call.__code__.replace(co_name=function.__name__, co_qualname=function.__qualname__)
    made = FunctionType(code, function.__globals__, function.__name__, None, call.__closure__)
    return functools.update_wrapper(made, function)


def _tell(error: Exception, function: Callable[..., Any], cls: type, given: dict[str, Any]) -> None:
    begun = error.__traceback__
    if type(error) is TypeError and begun is not None and begun.tb_next is None:
        error.args = (_about_the_call(str(error), function, cls, given),)
    hide_frames(error, meant=(TypeError, ValueError))


def _about_the_call(
    text: str, function: Callable[..., Any], cls: type, given: dict[str, Any]
) -> str:
    """Return Python's message about arguments that do not fit, with the method's public name."""
    name = function.__name__
    shown = cls.__name__ if name == "__init__" else f"{cls.__name__}.{name}"
    code = function.__code__
    taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for unknown in given if not code.co_flags & inspect.CO_VARKEYWORDS else ():
        if unknown not in taken:
            names = [each for each in taken if each not in ("self", "cls")]
            hint = did_you_mean(unknown, names) or f"; it takes {', '.join(names) or 'none'}"
            return f"{shown}() got an unexpected keyword argument {unknown!r}{hint}"
    return text.replace(f"{function.__qualname__}()", f"{shown}()")
