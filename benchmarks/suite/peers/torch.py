"""torch's DataLoader; torchdata's resumes (`torchdata.py`). Workers are 0 unless told otherwise."""

import torch.utils.data as tud
from packing import again, lines, pack

PACKAGES = ("torch",)
SETTINGS = {"defaults": {}} | {
    f"{n} workers, prefetch {p}, persistent": {"num_workers": n, "prefetch_factor": p, "persistent_workers": True}
    for n in (1, 2)
    for p in (2, 4)
}
LEFT_OUT = {}


class Mapped(tud.Dataset):
    def __init__(self, work):
        self.work = work
        self.items = list(lines(work.count)) if work.kind == "lines" else range(work.count)

    def __getitem__(self, index):
        return self.work.function(self.items[index])

    def __len__(self):
        return len(self.items)


def open(work, loader=tud.DataLoader, **settings):
    if work.kind == "arrays":  # a batch is one index of the columns: a sampler of batches, no collate
        columns = {name: tud.default_convert(column) for name, column in work.arrays().items()}
        batches = tud.BatchSampler(tud.RandomSampler(range(work.count)), work.batch, False)
        rows = type("Rows", (tud.Dataset,), {"__getitem__": lambda _, at: {n: c[at] for n, c in columns.items()}})()
        return loader(rows, batch_size=None, sampler=batches, **settings)
    if settings.get("num_workers") and not work.ordered and not work.shuffle:
        settings["in_order"] = False
    if work.kind == "lines":
        return again(lambda: pack(loader(Mapped(work), batch_size=None, **settings)))
    return loader(Mapped(work), batch_size=work.batch, shuffle=work.shuffle, **settings)
