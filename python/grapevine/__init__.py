"""grapevine: train with a swarm. The loop stays yours; after each optimizer step the member exchanges and averages.

    swarm = grapevine.join(bootstrap="192.0.2.7:7077", swarm_key="swarm.key", averaging="diloco", out="run")
    optimizer = swarm.wrap(torch.optim.AdamW(model.parameters()), model)
    with swarm.training(model, optimizer):
        ...                                  # the loop as it was

docs/pytorch.md is the guide; include/grapevine.h has the contract of the library below. Neither torch nor numpy is
needed before something of theirs is passed in.
"""
from ._library import GrapevineError
from .averager import ModelAverager
from .swarm import Status, Swarm, join

__all__ = ["GrapevineError", "ModelAverager", "Status", "Swarm", "join"]
