"""torchdata's StatefulDataLoader: torch's DataLoader with a state."""

from peers import torch
from torchdata.stateful_dataloader import StatefulDataLoader

PACKAGES = ("torch", "torchdata")
SETTINGS = torch.SETTINGS
LEFT_OUT = dict.fromkeys(("W2-python", "W2-native"), "packing has no state, so its row would be torch's")


def open(work, **settings):
    return torch.open(work, loader=StatefulDataLoader, **settings)


def save(iterator):
    return iterator.state_dict()


def restore(work, state, **settings):
    loader = open(work, **settings)
    loader.load_state_dict(state)
    return iter(loader)
