"""Wire format of a finished batch: pickle protocol 5, with its arrays in the slot.

A worker may make any Python object. The pickle is sent in the message; the memory of
arrays and tensors is in the slot, where `StreamedCollate` has written it row by row, or is copied
there once. The consumer's arrays and tensors are views of the slot.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import struct
import sys
from typing import TYPE_CHECKING, Any, ClassVar

import cloudpickle
import numpy as np

from tundish.loader.run.starting.tensors import reduce_tensor, tensor_of
from tundish.loader.run.starting.unpicklable import find_unpicklable
from tundish.loader.run.working.writing import SlotTooSmall
from tundish.shm.cloud import REDUCERS, dumps

if TYPE_CHECKING:
    from tundish.shm.memory import Arena

_HEAD = struct.Struct("<II")
_PAIR = struct.Struct("<QQ")
_IN_BAND = 1024
_INLINE = 16384
_ALIGN = 128
_PRIVATE = 65536
"""Leaves up to here are handed out as copies: a label that is kept pins no batch."""


class CutGradientError(RuntimeError):
    """A tensor of a batch has a gradient that leads back to others, which would be cut off."""


class TensorLeaf:
    """An array that becomes a tensor in torch.

    Parameters
    ----------
    array : numpy.ndarray
        The tensor's memory.
    dtype : str or None
        The name of torch's dtype, if numpy has no such dtype.
    """

    __slots__ = ("array", "dtype")

    def __init__(self, array: np.ndarray, dtype: str | None = None) -> None:
        self.array, self.dtype = array, dtype

    def __reduce__(self) -> tuple[Any, ...]:
        return tensor_of, (self.array, self.dtype)


class SlotMemory:
    """A slot in which one batch is made.

    Parameters
    ----------
    arena : Arena or None
        None without shared memory.
    slot : int
        The slot's number.
    have, may : int
        The slot's size in bytes, and the size that it may reach before the coordinator is asked.
    private : numpy.ndarray, optional
        Memory of this process in the place of the slot, which another machine has: what was used of it is sent there.
    """

    def __init__(
        self,
        arena: Arena | None,
        slot: int,
        have: int,
        may: int,
        private: np.ndarray | None = None,
    ) -> None:
        self._arena, self._slot, self._have, self._may = arena, slot, have, may
        self._private = private
        self.used = 0
        self.address = 0
        if private is not None:
            self.address = private.__array_interface__["data"][0]
            self._have = self._may = min(may, len(private))
        elif arena is not None:
            self.address = arena.root(slot, 1).__array_interface__["data"][0]

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Return an array in the slot; a private one if it is small, or if there is no room."""
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if self.address == 0 or nbytes <= _INLINE:
            return np.empty(shape, dtype)
        try:
            start = self.take(nbytes)
        except SlotTooSmall:
            return np.empty(shape, dtype)
        return self.view(start, nbytes).view(dtype).reshape(shape)

    def take(self, nbytes: int) -> int:
        """Allocate the next bytes of the slot; return their offset.

        Raises
        ------
        SlotTooSmall
            The slot may not have that many.
        """
        start = -(-self.used // _ALIGN) * _ALIGN
        end = start + nbytes
        if end > self._may:
            raise SlotTooSmall(end)
        if end > self._have:
            assert self._arena is not None
            first = max(start, self._have)
            self._arena.allocate(self._slot, first, end - first)
        self.used = end
        return start

    def view(self, start: int, nbytes: int) -> np.ndarray:
        """Return a range of the slot."""
        if self._private is not None:
            return self._private[start : start + nbytes]
        assert self._arena is not None
        return np.frombuffer(
            self._arena.map, np.uint8, nbytes, self._slot * self._arena.stride + start
        )


class PackedBatch:
    """A batch as a pickle and the memory it refers to.

    Attributes
    ----------
    main : bytes
        The pickle.
    raws : list of memoryview
        The memory, in the order in which the pickle refers to it.
    last : bool
        True if there is no batch and will be none, only a state.
    """

    __slots__ = ("last", "main", "raws")

    def __init__(self, main: bytes, raws: list[memoryview]) -> None:
        self.main, self.raws, self.last = main, raws, False


def pack_batch(batch: Any, state: Any = None) -> PackedBatch:
    """Pickle a batch, and the state of the dataset after it.

    Raises
    ------
    TypeError
        Something in it cannot be pickled: what, and where. It has a ``position`` if a batch is a
        list, for the element concerned.
    RuntimeError
        A tensor in it has a gradient that leads back to others, which would be cut off.
    """
    value = (batch, state)
    raws: list[memoryview] = []

    def aside(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # no contiguous memory
            return True
        if raw.nbytes < _IN_BAND:
            return True
        raws.append(raw)
        return False

    try:
        return PackedBatch(_dumps(_BatchPickler, value, aside), raws)
    except CutGradientError:
        raise
    except Exception:  # noqa: BLE001 - whatever pickle cannot take, cloudpickle may
        raws.clear()
    try:
        return PackedBatch(_dumps(_Cloud, value, aside), raws)
    except CutGradientError:
        raise
    except Exception as error:
        raise _unpicklable(batch, error) from error


class _BatchPickler(pickle.Pickler):
    own: ClassVar[dict[Any, Any]] = {}


class _Cloud(cloudpickle.Pickler):  # type: ignore[misc]
    own: ClassVar[dict[Any, Any]] = REDUCERS


def _dumps(pickler: Any, value: Any, aside: Any) -> bytes:
    # Joined for each batch: a library that is imported later, as torch may be, adds its rules.
    table = {**copyreg.dispatch_table, **pickler.own, np.ndarray: _array}
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        table[torch.Tensor] = _tensor
    pickler.dispatch_table = table
    file = io.BytesIO()
    pickler(file, protocol=5, buffer_callback=aside).dump(value)
    return file.getvalue()


def _array(array: np.ndarray) -> Any:
    """Reduce an array to one that the consumer may write to, as it may to any other of its batch."""
    return (array if array.flags.writeable else array.copy("K")).__reduce_ex__(5)


def _tensor(tensor: Any) -> Any:
    if tensor.requires_grad and not tensor.is_leaf:
        raise CutGradientError(
            "a tensor that requires a gradient and was computed from others cannot leave its worker: the gradient would end there, "
            "and train nothing. Return tensor.detach() from the dataset or collate_fn, or compute it in the training step"
        )
    reduced = reduce_tensor(tensor)
    return tensor.__reduce_ex__(5) if reduced is NotImplemented else reduced


def pack_keys(keys: Any) -> bytes:
    """Pickle the keys of a batch for a worker, also those of classes that it cannot import."""
    try:
        named = pickle.dumps(keys)
    except Exception:  # noqa: BLE001 - whatever pickle cannot take, cloudpickle may
        return dumps(keys, lambda _: True)
    if b"__main__" not in named:
        return named
    return pickle.dumps(_OfScript(named, dumps(keys, lambda _: True)))


class _OfScript:
    """Keys of a script's own classes, which a worker has by name only if the dataset refers to them."""

    def __init__(self, named: bytes, whole: bytes) -> None:
        self._named, self._whole = named, whole

    def __reduce__(self) -> tuple[Any, ...]:
        return _known, (self._named, self._whole)


def _known(named: bytes, whole: bytes) -> Any:
    try:
        return pickle.loads(named)
    except AttributeError:
        return pickle.loads(whole)


def _unpicklable(value: Any, error: Exception) -> TypeError:
    def attempt(part: object) -> Exception | None:
        try:
            _dumps(_Cloud, part, lambda _: True)
        except Exception as failure:  # noqa: BLE001 - anything can be raised by a __reduce__
            return failure
        return None

    where, what, reason = find_unpicklable(value, error, attempt)
    text = f"a batch cannot be sent from a worker: {where} is a {what} ({reason})"
    blamed = TypeError(text)
    if isinstance(value, list):
        bad = (at for at, part in enumerate(value) if attempt(part) is not None)
        blamed.position = next(bad, None)  # type: ignore[attr-defined]  # for whoever has the keys
    return blamed


def write_batch(packed: PackedBatch, memory: SlotMemory) -> tuple[bytes, bool]:
    """Write the parts of a batch to the slot that are not in it yet.

    Returns
    -------
    (bytes, bool)
        The message for `unpack_batch`, and True if anything is in the slot.

    Raises
    ------
    SlotTooSmall
        The slot is too small; the error has the number of bytes that are needed.
    """
    low, high = memory.address, memory.address + memory.used
    places: list[int | None] = []
    loose = 0
    for raw in packed.raws:
        at = np.frombuffer(raw, np.uint8).__array_interface__["data"][0]
        inside = memory.used > 0 and low <= at < high
        places.append(at - low if inside else None)
        if not inside:
            loose += -(-raw.nbytes // _ALIGN) * _ALIGN
    size = len(packed.main)
    alone = memory.used == 0 and loose + size <= _INLINE
    if memory.address == 0 or alone:
        table = b"".join([_PAIR.pack(0, raw.nbytes) for raw in packed.raws])
        head = _HEAD.pack(len(packed.raws), size)
        return b"".join([head, table, packed.main, *packed.raws]), False
    main_in_slot = size > _INLINE
    end = -(-memory.used // _ALIGN) * _ALIGN + loose + main_in_slot * size
    main = packed.main
    try:
        pairs = []
        for raw, place in zip(packed.raws, places, strict=True):
            start = place
            if start is None:
                start = memory.take(raw.nbytes)
                memory.view(start, raw.nbytes)[:] = np.frombuffer(raw, np.uint8)
            pairs.append(_PAIR.pack(start, raw.nbytes))
        if main_in_slot:
            start = memory.take(size)
            memory.view(start, size)[:] = np.frombuffer(main, np.uint8)
            main = _PAIR.pack(start, size)
    except SlotTooSmall as need:
        raise SlotTooSmall(max(end + _ALIGN * len(packed.raws), need.nbytes)) from None
    head = _HEAD.pack(len(pairs), 0 if main_in_slot else size)
    return b"".join([head, *pairs, main]), True


def unpack_batch(message: memoryview | bytes, root: np.ndarray | None, *, copy: bool) -> Any:
    """Rebuild the batch of `write_batch`.

    Parameters
    ----------
    message : bytes
        The result of `write_batch`.
    root : numpy.ndarray or None
        The slot; None if nothing is in it.
    copy : bool
        True to copy large arrays, too.
    """
    view = memoryview(message)
    count, size = _HEAD.unpack_from(view)
    at = _HEAD.size
    pairs = [_PAIR.unpack_from(view, at + _PAIR.size * k) for k in range(count)]
    at += _PAIR.size * count
    buffers: list[Any] = []
    if root is None:
        main: Any = view[at : at + size]
        at += size
        for _, nbytes in pairs:
            buffers.append(bytearray(view[at : at + nbytes]))
            at += nbytes
    else:
        for start, nbytes in pairs:
            part = root[start : start + nbytes]
            buffers.append(part.copy() if copy or nbytes <= _PRIVATE else part)
        if size:
            main = view[at : at + size]
        else:
            start, nbytes = _PAIR.unpack_from(view, at)
            main = root[start : start + nbytes]
    return pickle.loads(main, buffers=buffers)
