"""tally.distributed against torch.distributed's gloo: one script, run by both on three ranks, with equal values."""
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tally
import tally.distributed as dist
from conftest import PATIENCE

if not importlib.util.find_spec("torch"):
    pytest.skip("there is no torch", allow_module_level=True)
TREE = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("distributed_ranks.py")
PROGRAM = TREE / "build" / "tally"
N = 3


def launched(*words):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([str(PROGRAM), "launch", "-n", str(N), "--", *words], capture_output=True, text=True,
                          timeout=PATIENCE, env=environment)


def test_the_same_script_gives_torchs_values(tmp_path):
    if not PROGRAM.exists() or launched("true").returncode:
        pytest.skip("no MPI that starts processes")
    base = str(tmp_path / "ranks")
    torch = subprocess.Popen([sys.executable, str(SCRIPT), "torch", base, str(N)])
    done = launched(sys.executable, str(SCRIPT), "tally", base)
    assert torch.wait(timeout=PATIENCE) == 0
    assert done.returncode == 0, done.stderr
    for r in range(N):
        ours, theirs = (json.load(open(f"{base}.{name}.{r}")) for name in ("tally", "torch"))
        assert ours == theirs


def test_a_process_alone_is_a_group_of_one():
    with pytest.raises(ValueError, match="has not been initialized"):
        dist.get_rank()
    with pytest.raises(ValueError, match="rank 0 of 1, not 3 of 4"):
        dist.init_process_group(rank=3, world_size=4)
    dist.init_process_group()
    with pytest.raises(ValueError, match="twice"):
        dist.init_process_group()
    x = tally.ones(3)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    y = tally.zeros(2, 3)
    dist.all_to_all_single(y, tally.ones(2, 3))
    out = [tally.zeros(3)]
    dist.all_to_all(out, [tally.ones(3) * 2])
    assert x.tolist() == [1, 1, 1] and y.tolist() == [[1, 1, 1]] * 2 and out[0].tolist() == [2, 2, 2]
    with pytest.raises(ValueError, match="Global rank 1 is not part of group"):
        dist.broadcast(x, 1)
    dist.destroy_process_group()
    assert not dist.is_initialized()
