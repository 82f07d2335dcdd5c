"""torch.optim.swa_utils: the mean of a model's parameters over steps."""
import copy

from .._grad import no_grad
from ..nn.module import Module
from .lr_scheduler import LRScheduler


def get_ema_avg_fn(decay=0.999):
    """avg_fn of an exponential mean."""
    return lambda averaged, current, n: averaged * decay + current * (1 - decay)


class AveragedModel(Module):
    """A copy of a model whose parameters are the mean of those at each update_parameters."""

    def __init__(self, model, device=None, avg_fn=None, multi_avg_fn=None, use_buffers=False):
        super().__init__()
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device)
        from .._creation import tensor
        self.register_buffer("n_averaged", tensor(0))
        self._avg_fn, self._use_buffers = avg_fn, use_buffers

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def update_parameters(self, model):
        n = int(self.n_averaged)
        mean = self._avg_fn or (lambda averaged, current, n: averaged + (current - averaged) / (n + 1))
        pairs = list(zip(self.module.parameters(), model.parameters()))
        buffers = list(zip(self.module.buffers(), model.buffers()))
        with no_grad():
            for ours, theirs in pairs + (buffers if self._use_buffers else []):
                ours.data.copy_(theirs if not n or not ours.dtype.is_floating_point
                                else mean(ours.detach(), theirs.detach(), n))
            if not self._use_buffers:
                for ours, theirs in buffers:
                    ours.copy_(theirs)
        self.n_averaged += 1


class SWALR(LRScheduler):
    """From the rates of now to swa_lr, linearly, within anneal_epochs."""

    def __init__(self, optimizer, swa_lr, anneal_epochs=10, anneal_strategy="cos", last_epoch=-1):
        if anneal_strategy != "linear":
            raise NotImplementedError('SWALR: anneal_strategy is "linear" here; CosineAnnealingLR is the other form')
        self._goal, self._n = swa_lr, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        share = min(1.0, self.last_epoch / max(1, self._n))
        return [base + (self._goal - base) * share for base in self.base_lrs]
