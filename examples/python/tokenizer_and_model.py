"""From a text to a model of one's own: learns a tokenizer, trains a transformer on its tokens, and writes text with it.

    PYTHONPATH=python python3 examples/python/tokenizer_and_model.py [--steps 100] [--text FILE]

Without --text it generates sentences of a small grammar, and then begins with

    300 tokens, 2.3 bytes each; "the cat sees a bird." is 8 of them

The last lines are the model's own. After 100 steps they are sentences of that grammar; after 10 they are not.
"""
import argparse
import random
import tempfile
from pathlib import Path

import tally


def make_text(n_sentences=6000):
    r = random.Random(1)
    who = ["the cat", "the old dog", "a bird", "my friend", "the child"]
    does = ["sees", "follows", "waits for", "sings to", "forgets"]
    where = ["in the garden", "by the river", "at night", "under a tree"]
    return "".join(f"{r.choice(who)} {r.choice(does)} {r.choice(who)} {r.choice(where)}.\n" for _ in range(n_sentences))


def main(text, steps, work, say=print):
    """The losses of the steps, and what the model wrote."""
    path = work / "text.txt"
    path.write_text(text, encoding="utf-8")

    tokenizer = tally.Tokenizer.train([path], 300)
    tokenizer.save(work / "tokenizer")  # tokenizer.json, as Hugging Face's libraries read it
    sentence = "the cat sees a bird."
    say(f"{len(tokenizer)} tokens, {len(text.encode()) / len(tokenizer.encode(text)):.1f} bytes each; "
        f'"{sentence}" is {len(tokenizer.encode(sentence))} of them')

    settings = dict(data=path, tokenizer=work / "tokenizer", model="tiny", layers=2, channels=64, heads=4, batch=8,
                    seq=32, steps=steps, warmup=steps // 10, lr=3e-3, sample_tokens=0, out=work / "run")
    price = tally.train_price(**settings)  # the whole run, before it starts
    say(f"{price['kinds']['step']['count']} steps of {8 * 32} tokens")
    losses = []
    summary = tally.train(on_step=lambda news: losses.append(news["loss"]) if "loss" in news else None, **settings)
    say(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}; {summary['differences']} differences between price and receipt")

    written = tally.Model(work / "run").generate("the", tokens=30, temperature=0.5, seed=1)
    say(written)
    return losses, written


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--text", help="a file of text")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        main(Path(options.text).read_text(encoding="utf-8") if options.text else make_text(), options.steps,
             Path(folder))
