"""W2: lines to tokens to rows of 2,048 tokens; a tokenizer that holds the GIL, and one that does not."""

import functools
import json
import os
import re
from collections import Counter

import numpy as np
from bounds import repeating
from data import CACHE, LINES
from packing import lines
from work import Work

WORD = re.compile(rb" ?\w+| ?[^\w\s]+|\s+")


@functools.cache
def merges():
    """Return 300 merges of byte pairs by rank, learned once and kept in a file: training is not what is measured."""
    path = CACHE / "merges.json"
    if not path.exists():
        text = json.dumps([[part.hex() for part in pair] for pair in learned()])
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(text)
        partial.replace(path)
    pairs = [tuple(map(bytes.fromhex, pair)) for pair in json.loads(path.read_text())]
    return {pair: rank for rank, pair in enumerate(pairs)}


def learned():
    """Learn merges from the first 2,000 lines."""
    words = Counter(w for piece in list(lines(2_000)) for line in piece for w in WORD.findall(line))
    parts = {word: [bytes([byte]) for byte in word] for word in words}
    found = []
    while len(found) < 300:
        pairs = Counter()
        for word, number in words.items():
            for pair in zip(parts[word], parts[word][1:], strict=False):
                pairs[pair] += number
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        found.append(best)
        parts = {word: joined(pieces, best) for word, pieces in parts.items()}
    return found


def joined(pieces, pair):
    """Merge each occurrence of a pair."""
    found, at = [], 0
    while at < len(pieces):
        if at + 1 < len(pieces) and (pieces[at], pieces[at + 1]) == pair:
            found.append(pieces[at] + pieces[at + 1])
            at += 2
        else:
            found.append(pieces[at])
            at += 1
    return found


def python_bpe(piece):
    """Tokenize lines in pure Python."""
    ranks, tokens = merges(), []
    for line in piece:
        for word in WORD.findall(line):
            pieces = [bytes([byte]) for byte in word]
            while len(pieces) > 1:
                pair = min(
                    zip(pieces, pieces[1:], strict=False), key=lambda p: ranks.get(p, 1 << 30)
                )
                if pair not in ranks:
                    break
                pieces = joined(pieces, pair)
            tokens += [hash_of(part) for part in pieces]
        tokens.append(10)
    return np.array(tokens, np.int32)


def hash_of(part):
    """Return a token's number: bytes are themselves, others are numbered by their merge."""
    return part[0] if len(part) == 1 else vocabulary()[part]


@functools.cache
def vocabulary():
    """Return the merged parts' numbers."""
    return {first + second: 256 + rank for (first, second), rank in merges().items()}


@functools.cache
def tokenizer():
    """Return a byte-level BPE of `tokenizers`, trained on the first lines."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    path = CACHE / "tokenizer.json"
    if not path.exists():
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=8_000, show_progress=False)
        made.train_from_iterator(
            (line.decode("utf-8", "replace") for p in lines(LINES) for line in p), trainer
        )
        partial = path.with_suffix(f".{os.getpid()}")
        made.save(str(partial))
        partial.replace(path)
    return Tokenizer.from_file(str(path))


def native_bpe(piece):
    """Tokenize lines with `tokenizers`."""
    found = tokenizer().encode_batch([line.decode("utf-8", "replace") for line in piece])
    return np.concatenate([np.array(each.ids, np.int32) for each in found])


def alone(function):
    """Tokenize pieces and hand over nothing."""
    pieces, at = list(lines(LINES)), iter(range(1 << 60))

    def once():
        return len(function(pieces[next(at) % len(pieces)]))

    return once


def bound(function):
    return lambda index, seconds: repeating(alone(function))(index, seconds)


WORKS = [
    Work(
        name=name,
        title=title,
        kind="lines",
        count=number,
        bound="two processes that tokenize and hand over nothing (tokens/s)",
        bound_rate=bound(function),
        share=0.95,
        function=function,
        ordered=True,
        seconds=2.5,
    )
    for name, title, function, number in (
        ("W2-python", "text to packed tokens, a tokenizer in Python", python_bpe, LINES // 2),
        ("W2-native", "text to packed tokens, `tokenizers`", native_bpe, LINES),
    )
]
