"""Speech: spoken digits as spectra, batches of equal cost with padding, a recurrent network in PyTorch.

Utterances differ in length, so a batch holds as many as cost no more than a number of frames (`batch_by_cost`).

    pip install ".[torch]" espeakng-loader
    python examples/gallery/speech.py --steps 20 --state speech.pt

Data: ten words in 20 voices, spoken by eSpeak NG (GPL 3) into the folder `spoken` beside the state.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import wave
from pathlib import Path
from typing import Any

import espeakng_loader
import numpy as np
import torch
from torch import nn

import tundish as td

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
VOICES = [f"en-{c}+{sex}{n}" for c in ("us", "gb") for sex in "mf" for n in range(1, 6)]
BANDS = np.unique(np.geomspace(2, 250, 40).astype(int))


# %% The recordings: `word-voice.wav` in a folder that appears when it is whole.
def record(folder: Path) -> None:
    """Let eSpeak NG speak each word in each voice."""
    speaker = ctypes.CDLL(espeakng_loader.get_library_path())
    samples = bytearray()

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    def take(buffer: int | None, count: int, _: int) -> int:
        samples.extend(ctypes.string_at(buffer, 2 * count) if buffer else b"")
        return 0

    rate = speaker.espeak_Initialize(2, 0, espeakng_loader.get_data_path().encode(), 0)
    speaker.espeak_SetSynthCallback(take)
    (new := folder.with_suffix(".new")).mkdir(parents=True, exist_ok=True)
    for voice in VOICES:
        speaker.espeak_SetVoiceByName(voice.encode())
        for word in WORDS:
            samples.clear()
            speaker.espeak_Synth(word.encode(), len(word) + 1, 0, 1, 0, 1, None, None)
            with wave.open(f"{new}/{word}-{voice}.wav", "wb") as file:
                file.setparams((1, 2, rate, 0, "NONE", ""))
                file.writeframes(samples)
    new.rename(folder)


# %% One element: the energy in bands of frequencies every 10 ms, of a recording in noise.
def spectrum(path: str, rng: np.random.Generator) -> dict[str, Any]:
    """Read a recording; give its spectrum, the number of frames, and the word."""
    with wave.open(path) as file:
        sound = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768
        hop = file.getframerate() // 100
    sound = sound + rng.normal(0, 0.005, len(sound))
    frames = np.lib.stride_tricks.sliding_window_view(sound, 512)[::hop] * np.hanning(512)
    energy = np.add.reduceat(np.abs(np.fft.rfft(frames)) ** 2, BANDS, axis=1)
    word = WORDS.index(Path(path).name.partition("-")[0])
    return {"x": np.log(energy + 1e-6).astype(np.float32), "frames": len(energy), "word": word}


# %% The pipeline.
def data(folder: Path, workers: int) -> td.Dataset:
    """Batches of at most 1,500 frames."""
    files = td.Dataset.list_files(f"{folder}/*.wav", shuffle=False).shuffle(None, seed=1).repeat()
    spectra = files.map(spectrum, seed=1)
    batches = spectra.batch_by_cost(1500, cost=lambda element: element["frames"], pad=True)
    return batches.with_options(td.Options(workers=workers))


# %% The loop.
def main(arguments: list[str] | None = None) -> None:
    """Train, and continue from the file if there is one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--state", type=Path, default=Path("speech.pt"))
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args(arguments)
    if not (folder := args.state.with_name("spoken")).exists():
        record(folder)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # sums in one order: the same bits on every machine of a kind
    model = nn.ModuleList([nn.GRU(len(BANDS), 48, batch_first=True), nn.Linear(48, len(WORDS))])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    step = 0
    with iter(data(folder, args.workers)) as batches:
        if args.state.exists():
            *parts, step = torch.load(args.state)
            for part, state in zip((model, optimizer, batches), parts, strict=True):
                part.load_state_dict(state)
            print(f"continuing after step {step}")
        while step < args.steps:
            x, frames, word = (torch.from_numpy(leaf) for leaf in next(batches).values())
            heard, _ = model[0](x)
            last = heard[torch.arange(len(x)), frames - 1]  # behind it there is padding
            loss = nn.functional.cross_entropy(model[1](last), word)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            print(f"step {step} loss {loss.item():.4f} of {len(x)} words", flush=True)
            if step % 5 == 0:
                parts = *(part.state_dict() for part in (model, optimizer, batches)), step
                torch.save(parts, new := args.state.with_suffix(".new"))
                new.replace(args.state)  # whole at any instant: the old one or the new one
    raw = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
    print(f"weights {hashlib.sha256(raw).hexdigest()[:16]}")


# %% Run it.
if __name__ == "__main__":
    main()
