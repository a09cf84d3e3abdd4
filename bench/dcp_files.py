"""Checkpoints as torch.distributed.checkpoint lays them out, made without torch and of any size: the shards are holes.

The metadata is a pickle of the same classes, by name, in the same order of fields; tests/unit/checkpoint compares it
with what torch wrote. What costs a reader time is the number of pieces: each rank saves one piece of each tensor.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

_METADATA = "torch.distributed.checkpoint.metadata"
_FILESYSTEM = "torch.distributed.checkpoint.filesystem"


class Size(tuple[int, ...]):
    """`torch.Size`."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return Size, (tuple(self),)


def _record(name: str) -> type:
    return type(name, (), {"__init__": lambda self, **fields: self.__dict__.update(fields)})


Metadata, TensorStorageMetadata, ChunkStorageMetadata, MetadataIndex, StorageInfo = (
    _record(name)
    for name in ("Metadata", "TensorStorageMetadata", "ChunkStorageMetadata", "MetadataIndex", "_StorageInfo")
)
PLACES = {
    Size: ("torch", "Size"),
    StorageInfo: (_FILESYSTEM, "_StorageInfo"),
    **{
        kind: (_METADATA, kind.__name__)
        for kind in (Metadata, TensorStorageMetadata, ChunkStorageMetadata, MetadataIndex)
    },
}


@dataclass(frozen=True)
class Piece:
    """What one rank saves of a tensor.

    Attributes:
        length: bytes in its shard.
    """

    offsets: Sequence[int]
    sizes: Sequence[int]
    shard: str
    offset: int
    length: int


@contextlib.contextmanager
def modules_of_torch() -> Iterator[dict[str, ModuleType]]:
    """The modules that the pickle names, as far as it needs them, for as long as it is made."""
    names = ("torch", "torch.distributed", "torch.distributed.checkpoint", _METADATA, _FILESYSTEM)
    before = {name: sys.modules.get(name) for name in names}
    made = {name: ModuleType(name) for name in names}
    for kind, (module, name) in PLACES.items():
        kind.__module__, kind.__qualname__ = module, name
        setattr(made[module], name, kind)
    sys.modules.update(made)
    try:
        yield made
    finally:
        for name, earlier in before.items():
            if earlier is None:
                del sys.modules[name]
            else:
                sys.modules[name] = earlier


def metadata_of(tensors: Mapping[str, Sequence[Piece]]) -> bytes:
    """The bytes of `.metadata`."""
    described = {
        name: TensorStorageMetadata(size=Size((0,)), chunks=_chunks(pieces)) for name, pieces in tensors.items()
    }
    stored = {index_of(name, 0, piece.offsets): _storage(piece) for name, piece in _by_shard(tensors)}
    return pickled(Metadata(state_dict_metadata=described, planner_data=None, storage_data=stored))


def pickled(record: Any) -> bytes:
    """The record as torch saves it."""
    with modules_of_torch():
        return pickle.dumps(record, protocol=4)


def _chunks(pieces: Iterable[Piece]) -> list[Any]:
    return [ChunkStorageMetadata(offsets=Size(piece.offsets), sizes=Size(piece.sizes)) for piece in pieces]


def _by_shard(tensors: Mapping[str, Sequence[Piece]]) -> list[tuple[str, Piece]]:
    found = [(name, piece) for name, pieces in tensors.items() for piece in pieces]
    return sorted(found, key=lambda pair: pair[1].shard)


def index_of(fqn: str, index: int | None, offset: Sequence[int] | None) -> Any:
    """The key of a piece."""
    own = (fqn + " ")[:-1]  # each rank sends its own string, so that none is shared
    return MetadataIndex(fqn=own, index=index, **({} if offset is None else {"offset": Size(offset)}))


def _storage(piece: Piece) -> Any:
    return StorageInfo(relative_path=piece.shard, offset=piece.offset, length=piece.length)


def sharded(tensors: int, ranks: int, rows: int = 16, columns: int = 4096) -> dict[str, list[Piece]]:
    """So many tensors, each spread over all ranks by its rows, in bfloat16."""
    length = rows * columns * 2 + 1256  # with the header that torch.save puts before each
    shards = [f"__{rank}_0.distcp" for rank in range(ranks)]
    return {
        f"model.layers.{place // 9}.self_attn.projection_{place % 9}.weight": [
            Piece((rank * rows, 0), (rows, columns), shard, place * length, length) for rank, shard in enumerate(shards)
        ]
        for place in range(tensors)
    }


def write(directory: Path, metadata: bytes, tensors: Mapping[str, Sequence[Piece]]) -> None:
    """One checkpoint; its shards have the right length and no content."""
    sizes: dict[str, int] = {}
    for pieces in tensors.values():
        for piece in pieces:
            sizes[piece.shard] = max(sizes.get(piece.shard, 0), piece.offset + piece.length)
    directory.mkdir(parents=True)
    for shard, size in sizes.items():
        with (directory / shard).open("wb") as stream:
            stream.truncate(size)
    (directory / ".metadata.tmp").write_bytes(metadata)
    (directory / ".metadata.tmp").replace(directory / ".metadata")
