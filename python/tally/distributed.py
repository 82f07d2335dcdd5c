"""Several processes that exchange tensors, with torch.distributed's names.

    import tally, tally.distributed as dist
    dist.init_process_group()
    x = tally.ones(4) * dist.get_rank()
    dist.all_reduce(x)                     # in place; sums are in the order of ranks

Start them with `tally launch -n 4 -- python program.py`, mpirun, srun or torchrun. A process that is started alone is a
group of one. Calls are synchronous: there is no async_op. Tensors that are written to must not need gradients.
"""
from . import _functions as F
from ._grad import no_grad
from ._library import lib

__all__ = ["ReduceOp", "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all", "all_to_all_single",
           "barrier", "broadcast", "destroy_process_group", "get_rank", "get_world_size", "group", "init_process_group",
           "is_available", "is_initialized", "new_group", "recv", "reduce_scatter", "reduce_scatter_tensor", "send"]


class ReduceOp:
    SUM, AVG, PRODUCT, MIN, MAX = "sum", "avg", "product", "min", "max"


class ProcessGroup:
    """Some of the ranks. `ranks` are those of the world, in the group's order."""

    def __init__(self, address, ranks):
        self.address, self.ranks = address, ranks

    def rank(self):
        return lib.tl_comm_rank(self.address)

    def size(self):
        return len(self.ranks)


class group:
    WORLD = None


def is_available():
    return True


def is_initialized():
    return group.WORLD is not None


def init_process_group(backend=None, init_method=None, *, rank=-1, world_size=-1, **_):
    """Joins the processes of this launch. The launcher decides the ranks; backend and init_method are accepted and
    have no effect, a rank or world_size that differs from the launch's is an error."""
    if is_initialized():
        raise ValueError("trying to initialize the default process group twice!")
    address = lib.tl_comm_world()
    n, me = lib.tl_comm_size(address), lib.tl_comm_rank(address)
    if world_size not in (-1, n) or rank not in (-1, me):
        raise ValueError(f"this is rank {me} of {n}, not {rank} of {world_size}: start the processes with "
                         f"`tally launch -n {max(world_size, 2)} -- python ...`, mpirun, srun or torchrun")
    group.WORLD = ProcessGroup(address, list(range(n)))


def destroy_process_group(group=None):
    if group is not None and group is not _world():
        lib.tl_comm_free(group.address)
    else:
        globals()["group"].WORLD = None


def _world():
    if group.WORLD is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return group.WORLD


def _of(g):
    """The group, or None where this process is none of it: as in torch, the call then does nothing."""
    g = g if g is not None else _world()
    return g if g.rank() >= 0 else None


def _peer(g, rank):
    if rank not in g.ranks:
        raise ValueError(f"Global rank {rank} is not part of group {g.ranks}")
    return g.ranks.index(rank)


def get_rank(group=None):
    return (group or _world()).rank()


def get_world_size(group=None):
    g = group or _world()
    return g.size() if g.rank() >= 0 else -1


def new_group(ranks=None, **_):
    """A group of these ranks. All processes call it, also those that are not in it."""
    world = _world()
    ranks = sorted(world.ranks if ranks is None else ranks)
    return ProcessGroup(lib.tl_comm_group(world.address, ranks), ranks)


def barrier(group=None, **_):
    g = _of(group)
    if g:
        lib.tl_comm_barrier(g.address)


def _parts(gathered, n, like):
    return [part.reshape(like.shape) for part in gathered.chunk(n)]


def _rows(x):
    """As rows that a collective can join or cut: a scalar is one."""
    return x.reshape(1) if x.dim() == 0 else x


_FOLD = {ReduceOp.PRODUCT: lambda a, b: a * b, ReduceOp.MIN: F.minimum, ReduceOp.MAX: F.maximum}


def _reduced(tensor, op, g):
    if op in (ReduceOp.SUM, ReduceOp.AVG):
        total = lib.tl_all_reduce(tensor, g.address)
        return total / g.size() if op == ReduceOp.AVG else total
    parts = _parts(lib.tl_all_gather(_rows(tensor), g.address), g.size(), tensor)
    total = parts[0]
    for part in parts[1:]:
        total = _FOLD[op](total, part)
    return total


@no_grad()
def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    g = _of(group)
    if g:
        tensor.copy_(_reduced(tensor, op, g))


@no_grad()
def broadcast(tensor, src=0, group=None):
    g = _of(group)
    if g:
        tensor.copy_(lib.tl_broadcast(tensor, _peer(g, src), g.address))


@no_grad()
def all_gather(tensor_list, tensor, group=None):
    g = _of(group)
    if g:
        for to, part in zip(tensor_list, _parts(lib.tl_all_gather(_rows(tensor), g.address), g.size(), tensor)):
            to.copy_(part)


@no_grad()
def all_gather_into_tensor(output_tensor, input_tensor, group=None):
    g = _of(group)
    if g:
        output_tensor.copy_(lib.tl_all_gather(_rows(input_tensor), g.address).reshape(output_tensor.shape))


@no_grad()
def reduce_scatter_tensor(output, input, op=ReduceOp.SUM, group=None):
    g = _of(group)
    if not g:
        return
    rows = input.reshape(g.size(), -1)
    if op in (ReduceOp.SUM, ReduceOp.AVG):
        part = lib.tl_reduce_scatter(rows, g.address)
        part = part / g.size() if op == ReduceOp.AVG else part
    else:
        blocks = lib.tl_all_to_all(rows, g.address).chunk(g.size())
        part = blocks[0]
        for block in blocks[1:]:
            part = _FOLD[op](part, block)
    output.copy_(part.reshape(output.shape))


@no_grad()
def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None):
    reduce_scatter_tensor(output, F.stack(list(input_list)), op, group)


@no_grad()
def all_to_all_single(output, input, group=None):
    g = _of(group)
    if g:
        output.copy_(lib.tl_all_to_all(input, g.address).reshape(output.shape))


@no_grad()
def all_to_all(output_tensor_list, input_tensor_list, group=None):
    """The tensors have one shape."""
    g = _of(group)
    if g:
        blocks = lib.tl_all_to_all(F.stack(list(input_tensor_list)), g.address)
        for to, part in zip(output_tensor_list, _parts(blocks, g.size(), input_tensor_list[0])):
            to.copy_(part)


@no_grad()
def send(tensor, dst, group=None):
    g = _of(group)
    if g:
        lib.tl_send(tensor, _peer(g, dst), g.address)


@no_grad()
def recv(tensor, src, group=None):
    """Receives into the tensor. Returns the sender's rank."""
    g = _of(group)
    if not g:
        return -1
    tensor.copy_(lib.tl_recv(lib.shape_of(tensor), lib.tl_dtype_of(tensor), lib.tl_device_of(tensor), _peer(g, src),
                             g.address))
    return src
