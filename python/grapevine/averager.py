"""For loops with torch.distributed's averagers: the shape of PeriodicModelAverager, over a swarm."""
from typing import TYPE_CHECKING, Any, Iterable

if TYPE_CHECKING:
    from .swarm import Swarm


class ModelAverager:
    """average_parameters(params) after each optimizer step; every `period`-th call after `warmup_steps` is a round."""

    def __init__(self, swarm: "Swarm", period: int = 1, warmup_steps: int = 0) -> None:
        if period < 1 or warmup_steps < 0:
            raise ValueError("ModelAverager: period has to be 1 or more, and warmup_steps 0 or more")
        self.swarm, self.period, self.warmup_steps, self.step = swarm, period, warmup_steps, 0

    def average_parameters(self, params: Iterable[Any]) -> None:
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            self.swarm.average(list(params))
        self.step += 1
