"""torch.nn.parallel: one model in several processes, its gradients averaged."""
import contextlib

from ... import distributed
from ..module import Module


class DistributedDataParallel(Module):
    """Every process has the module. Each gradient is averaged over all processes when backward has made it."""

    def __init__(self, module, device_ids=None, output_device=None, dim=0, broadcast_buffers=True, process_group=None,
                 bucket_cap_mb=None, find_unused_parameters=False, gradient_as_bucket_view=False, static_graph=False,
                 **_):
        super().__init__()
        self.module, self._group, self.require_backward_grad_sync = module, process_group, True
        for x in (*module.parameters(), *module.buffers()):
            distributed.broadcast(x.detach(), 0, group=process_group)
        for p in module.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(self._average)

    def _average(self, p):
        if self.require_backward_grad_sync and distributed.get_world_size(self._group) > 1:
            distributed.all_reduce(p.grad, distributed.ReduceOp.AVG, group=self._group)

    @contextlib.contextmanager
    def no_sync(self):
        """Gradients made inside stay as they are: they are averaged with those that follow."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


class DataParallel(Module):
    """The module: a process uses one device."""

    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        super().__init__()
        self.module = module

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)
