"""A module that each import makes anew: from random numbers, and from the order of a set of texts."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pandas as pd

WORDS = tuple(f"word {i}" for i in range(40))
FILES = [f"{i:06}.jpg" for i in range(20_000)]
random.shuffle(FILES)
SPLIT = random.sample(range(40), 40)
ORDER = np.random.permutation(60_000)  # noqa: NPY002 - as users do
NUMBER = {word: i for i, word in enumerate(set(WORDS))}
SERIES = pd.Series(NUMBER)


class Vocabulary:
    NUMBER = {word: i for i, word in enumerate(set(WORDS))}  # noqa: RUF012 - as users do

    def __init__(self, words: set[str]) -> None:
        self.number = {word: i for i, word in enumerate(words)}

    @classmethod
    def find(cls, word: str) -> int:
        return cls.NUMBER[word]


VOCABULARY = Vocabulary(set(WORDS))


def by_default(word: str, number: dict[str, int] = NUMBER) -> int:
    return number[word]


def split(x: Any) -> int:
    return SPLIT[int(x)]


def read(x: Any) -> tuple[Any, ...]:
    """Read each of them."""
    word = WORDS[int(x)]
    return (
        FILES[int(x)],
        SPLIT[int(x)],
        int(ORDER[int(x)]),
        NUMBER[word],
        int(SERIES[word]),
        VOCABULARY.number[word],
        Vocabulary.find(word),
        by_default(word),
    )
