# mypy: disable-error-code="override"
# The methods of `Dataset` that change the type of its elements, as type checkers see them. The families say `Self` for what
# they return: a type checker cannot express "the same class, with elements of another type", and a family must not import
# `Dataset`. So their signatures are here again, with what they make.

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar, overload

import numpy as np

from tundish.loader.dataset import Dataset
from tundish.loader.operators.families import Methods
from tundish.loader.operators.packing import Tokens
from tundish.loader.operators.reducing import Reducer
from tundish.source import Source
from tundish.spec import Element_co

_Made = TypeVar("_Made")
_Other = TypeVar("_Other")
_Number = TypeVar("_Number", bound=np.generic)

class Typed(Methods, Generic[Element_co]):
    def pad_to_cardinality(self, cardinality: int, mask_key: str = ...) -> Dataset[Any]: ...
    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = ...,
        num_parallel_calls: int | None = ...,
        deterministic: bool | None = ...,
        name: str | None = ...,
    ) -> Dataset[Any]: ...
    def unbatch(self, name: str | None = ...) -> Dataset[Any]: ...
    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[..., Any],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: Any = ...,
        padding_values: Any = ...,
        pad_to_bucket_boundary: bool = ...,
        no_padding: bool = ...,
        drop_remainder: bool = ...,
        name: str | None = ...,
    ) -> Dataset[Any]: ...
    @classmethod
    def choose_from_datasets(
        cls,
        datasets: Any,
        choice_dataset: Any,
        stop_on_empty_dataset: bool = ...,
        name: str | None = ...,
    ) -> Dataset[Any]: ...
    def concatenate(
        self, dataset: Dataset[_Other], name: str | None = ...
    ) -> Dataset[Element_co | _Other]: ...
    def batch_by_cost(
        self,
        max_cost: float,
        cost: Callable[..., Any],
        pad: bool = ...,
        *,
        padded_shapes: Any = ...,
        padding_values: Any = ...,
        pad_to_multiple_of: Any = ...,
        side: Literal["left", "right"] = ...,
        max_elements: int | None = ...,
        drop_remainder: bool = ...,
        name: str | None = ...,
    ) -> Dataset[Any]: ...
    @overload
    @classmethod
    def range(cls, *args: int, name: str | None = ...) -> Dataset[np.int64]: ...
    @overload
    @classmethod
    def range(
        cls, *args: int, output_type: type[_Number], name: str | None = ...
    ) -> Dataset[_Number]: ...
    @overload
    @classmethod
    def range(cls, *args: int, output_type: Any = ..., name: str | None = ...) -> Dataset[Any]: ...
    @overload
    @classmethod
    def counter(
        cls, start: float = ..., step: float = ..., *, name: str | None = ...
    ) -> Dataset[np.int64]: ...
    @overload
    @classmethod
    def counter(
        cls, start: float = ..., step: float = ..., *, dtype: type[_Number], name: str | None = ...
    ) -> Dataset[_Number]: ...
    @overload
    @classmethod
    def counter(
        cls, start: float = ..., step: float = ..., dtype: Any = ..., name: str | None = ...
    ) -> Dataset[Any]: ...
    @classmethod
    def random(
        cls,
        seed: int | None = ...,
        rerandomize_each_iteration: bool | None = ...,
        name: str | None = ...,
    ) -> Dataset[np.int64]: ...
    def enumerate(
        self, start: int = ..., name: str | None = ...
    ) -> Dataset[tuple[np.int64, Element_co]]: ...
    def flat_map(
        self, map_func: Callable[..., Dataset[_Made]], name: str | None = ...
    ) -> Dataset[_Made]: ...
    @classmethod
    def from_generator(
        cls,
        generator: Callable[..., Any],
        output_types: Any = ...,
        output_shapes: Any = ...,
        args: Sequence[Any] | None = ...,
        output_signature: Any = ...,
        name: str | None = ...,
    ) -> Dataset[Any]: ...
    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Any], Any],
        window_size: int | None = ...,
        window_size_func: Callable[[Any], Any] | None = ...,
        name: str | None = ...,
    ) -> Dataset[Any]: ...
    def interleave(
        self,
        map_func: Callable[..., Dataset[_Made]],
        cycle_length: int | None = ...,
        block_length: int | None = ...,
        num_parallel_calls: int | None = ...,
        deterministic: bool | None = ...,
        name: str | None = ...,
    ) -> Dataset[_Made]: ...
    @classmethod
    def list_files(
        cls,
        file_pattern: Any,
        shuffle: bool | None = ...,
        seed: int | None = ...,
        name: str | None = ...,
        *,
        storage_options: Mapping[str, Any] | None = ...,
    ) -> Dataset[str]: ...
    def map(
        self,
        map_func: Callable[..., _Made],
        num_parallel_calls: int | None = ...,
        deterministic: bool | None = ...,
        name: str | None = ...,
        *,
        seed: int | None = ...,
        on_error: str | None = ...,
        retries: int = ...,
        output_signature: Any = ...,
    ) -> Dataset[_Made]: ...
    def map_batches(
        self,
        map_func: Callable[..., Any],
        batch_size: int,
        num_parallel_calls: int | None = ...,
        deterministic: bool | None = ...,
        name: str | None = ...,
        *,
        seed: int | None = ...,
        on_error: str | None = ...,
        retries: int = ...,
        drop_remainder: bool = ...,
    ) -> Dataset[Any]: ...
    def pack(
        self,
        length: int,
        *,
        method: Literal["concat", "first_fit"] = ...,
        separator: Tokens | None = ...,
        pad_value: Tokens = ...,
        drop_remainder: bool = ...,
        too_long: Literal["split", "truncate", "error"] | None = ...,
        open_rows: int | None = ...,
        tokens: str = ...,
        segment_ids: str | None = ...,
        positions: str | None = ...,
        name: str | None = ...,
    ) -> Dataset[Any]: ...
    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = ...,
        padding_values: Any = ...,
        drop_remainder: bool = ...,
        name: str | None = ...,
        *,
        pad_to_multiple_of: Any = ...,
        side: Literal["left", "right"] = ...,
    ) -> Dataset[Any]: ...
    def ragged_batch(
        self,
        batch_size: int,
        drop_remainder: bool = ...,
        row_splits_dtype: Any = ...,
        name: str | None = ...,
    ) -> Dataset[Any]: ...
    def sparse_batch(
        self, batch_size: int, row_shape: Any, name: str | None = ...
    ) -> Dataset[Any]: ...
    def group_by_reducer(
        self, key_func: Callable[..., Any], reducer: Reducer, name: str | None = ...
    ) -> Dataset[Any]: ...
    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Sequence[float],
        initial_dist: Sequence[float] | None = ...,
        seed: int | None = ...,
        name: str | None = ...,
    ) -> Dataset[tuple[Any, Element_co]]: ...
    @classmethod
    def sample_from_datasets(
        cls,
        datasets: Any,
        weights: Any = ...,
        seed: int | None = ...,
        stop_on_empty_dataset: bool = ...,
        rerandomize_each_iteration: bool | None = ...,
        name: str | None = ...,
    ) -> Dataset[Any]: ...
    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        element_spec: Any = ...,
        compression: str | None = ...,
        reader_func: Callable[..., Any] | None = ...,
        wait: bool = ...,
    ) -> Dataset[Any]: ...
    def scan(
        self, initial_state: Any, scan_func: Callable[[Any, Any], Any], name: str | None = ...
    ) -> Dataset[Any]: ...
    @classmethod
    def from_tensors(cls, tensors: Any, name: str | None = ...) -> Dataset[Any]: ...
    @classmethod
    def from_tensor_slices(cls, tensors: Any, name: str | None = ...) -> Dataset[Any]: ...
    @classmethod
    def from_list(cls, elements: Sequence[Any], name: str | None = ...) -> Dataset[Any]: ...
    @classmethod
    def from_source(cls, source: Source) -> Dataset[Any]: ...
    @classmethod
    def from_arrow(
        cls,
        table: Any,
        columns: Sequence[str] | None = ...,
        schema: Any = ...,
        defaults: Mapping[str, Any] | None = ...,
    ) -> Dataset[Any]: ...
    @classmethod
    def from_pandas(
        cls,
        frame: Any,
        columns: Sequence[str] | None = ...,
        schema: Any = ...,
        defaults: Mapping[str, Any] | None = ...,
        *,
        preserve_index: bool = ...,
    ) -> Dataset[Any]: ...
    def window(
        self,
        size: int,
        shift: int | None = ...,
        stride: int = ...,
        drop_remainder: bool = ...,
        name: str | None = ...,
    ) -> Dataset[Any]: ...
    @overload
    @classmethod
    def zip(
        cls, first: Dataset[_Made], second: Dataset[_Other], /, *, name: str | None = ...
    ) -> Dataset[tuple[_Made, _Other]]: ...
    @overload
    @classmethod
    def zip(cls, *args: Any, datasets: Any = ..., name: str | None = ...) -> Dataset[Any]: ...
