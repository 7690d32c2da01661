"""W1: photographs, decoded, cropped and flipped; three epochs in a true permutation."""

import io

import numpy as np
from bounds import calling
from data import CACHE
from work import Work

PATHS = sorted((CACHE / "photos").glob("*.jpg"))


def photo(index):
    """Decode a file; crop 224 x 224 and flip, drawn by the index."""
    from PIL import Image

    index = int(index)
    draw = np.random.default_rng(index)
    image = np.asarray(Image.open(io.BytesIO(PATHS[index].read_bytes())))
    top, left = draw.integers(0, image.shape[0] - 224), draw.integers(0, image.shape[1] - 224)
    cut = image[top : top + 224, left : left + 224]
    return (cut[:, ::-1] if draw.random() < 0.5 else cut).astype(np.float32)


WORKS = [
    Work(
        name="W1",
        title="photographs: decode, crop, flip; batches of 64",
        kind="map",
        count=len(PATHS),
        bound="two processes that call the function and hand over nothing",
        bound_rate=calling(photo, len(PATHS)),
        share=0.95,
        function=photo,
        batch=64,
        shuffle=True,
        epochs=3,
    ),
]
