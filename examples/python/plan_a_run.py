"""Plans a run for machines that are not here: the largest batch of a model that fits a GPU, and what fills its memory.

    PYTHONPATH=python python3 examples/python/plan_a_run.py

prints a line for each GPU, such as

    RTX 4090: batches of 70 x 1024 tokens take 22.7 GiB, 88 % of it activations; 71 do not fit

Nothing is trained: the steps are priced on shapes alone. `tally fit --help` and `tally plan --help` describe the rest.
"""
import tally

for device in ("RTX 4090", "A100 40GB", "H100"):
    answer = tally.fit("batch", model="gpt2-124m", recipe="bf16", seq=1024, device=device)["answers"]["batch"]
    best, total = answer["best"], int(answer["best"]["bytes"])
    share = int(best["peak_by_purpose"]["activation"]) / total
    print(f"{device}: batches of {best['size']} x 1024 tokens take {total / 2**30:.1f} GiB, {100 * share:.0f} % of it "
          f"activations; {answer['next']['size']} do not fit")
