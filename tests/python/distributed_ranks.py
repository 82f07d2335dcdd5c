"""One rank of test_distributed.py: the same calls with tally or torch, and what each tensor became, as JSON."""
import json
import os
import sys

if sys.argv[1] == "torch":
    import torch as lib
    import torch.distributed as dist
    N = int(sys.argv[3])
    me, children = 0, []
    for r in range(1, N):  # importing torch takes most of the time, so one process does it and becomes all ranks
        child = os.fork()
        if not child:
            me, children = r, []
            break
        children.append(child)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}.store", rank=me, world_size=N)
else:
    import tally as lib
    import tally.distributed as dist
    dist.init_process_group()

n, me = dist.get_world_size(), dist.get_rank()
seen = []


def note(*tensors):
    seen.append([x.reshape(-1).tolist() for x in tensors])


def fresh(*shape):
    size = 1
    for s in shape:
        size *= s
    return (lib.arange(size, dtype=lib.float32) * 2 + 3 * me + 1).reshape(shape)


def all_reduce_avg(x):
    """gloo has no AVG, so torch's is made of its sum."""
    if sys.argv[1] == "torch":
        dist.all_reduce(x)
        x /= n
    else:
        dist.all_reduce(x, dist.ReduceOp.AVG)


def all_to_all(outputs, inputs):
    """gloo has only all_to_all_single."""
    if sys.argv[1] == "torch":
        stacked = lib.zeros(n, *outputs[0].shape)
        dist.all_to_all_single(stacked, lib.stack(inputs))
        for output, part in zip(outputs, stacked):
            output.copy_(part)
    else:
        dist.all_to_all(outputs, inputs)


for shape in ((3, 5), ()):
    for op in ("SUM", "MIN", "MAX", "PRODUCT"):
        x = fresh(*shape)
        dist.all_reduce(x, getattr(dist.ReduceOp, op))
        note(x)
    x = fresh(*shape)
    all_reduce_avg(x)
    note(x)
for root in range(n):
    x = fresh(2, 3)
    dist.broadcast(x, root)
    note(x)
parts = [lib.zeros(2, 3) for _ in range(n)]
dist.all_gather(parts, fresh(2, 3))
note(*parts)
x = lib.zeros(2 * n, 3)
dist.all_gather_into_tensor(x, fresh(2, 3))
note(x)
x = lib.zeros(2, 3)
dist.reduce_scatter(x, [fresh(2, 3) + k for k in range(n)])
note(x)
x = lib.zeros(2, 3)
dist.reduce_scatter_tensor(x, fresh(2 * n, 3))
note(x)
x = lib.zeros(2 * n, 3)
dist.all_to_all_single(x, fresh(2 * n, 3))
note(x)
parts = [lib.zeros(2, 3) for _ in range(n)]
all_to_all(parts, [fresh(2, 3) + 10 * k for k in range(n)])
note(*parts)
x = fresh(4, 3).transpose(0, 1)  # not dense
dist.all_reduce(x)
note(x)
dist.barrier()
x = fresh(4)
if me == 0:
    dist.send(x, n - 1)
elif me == n - 1:
    assert dist.recv(x, 0) == 0
note(x)
pair = dist.new_group([0, n - 1])
x = fresh(4)
if me in (0, n - 1):
    assert dist.get_rank(pair) == (me != 0) and dist.get_world_size(pair) == 2
    dist.all_reduce(x, group=pair)
    note(x)
    dist.broadcast(x, n - 1, group=pair)
note(x)
json.dump(seen, open(f"{sys.argv[2]}.{sys.argv[1]}.{me}", "w"))
dist.destroy_process_group()
assert not dist.is_initialized()
if sys.argv[1] == "torch":
    sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
