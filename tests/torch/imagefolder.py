"""A folder of images as a source, as `docs/guide/files.md` has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


class ImageFolder:
    """``folder/label/name.png`` for every image."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(Path(folder).glob("*/*"))
        self.labels = sorted({path.parent.name for path in self.paths})

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        path = self.paths[index]
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
        return {"image": pixels, "label": self.labels.index(path.parent.name)}
