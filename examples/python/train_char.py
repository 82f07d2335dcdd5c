"""Trains a small character-level transformer, and prints the cost of a step before the first one.

    PYTHONPATH=python python3 examples/python/train_char.py [--steps 200] [--text FILE]

Without --text it generates sentences from a small grammar, which a good model can predict well. `tally data make`
writes a larger corpus. The loss is in nats per character; uniform guessing gives the logarithm of the alphabet's size.
"""
import argparse
import math
import random

import tally
from tally import nn
from tally.nn import functional as F

CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 32, 64, 4, 2, 16


def make_text(n_sentences=4000, seed=1):
    r = random.Random(seed)
    who = ["the cat", "the old dog", "a bird", "my friend", "the child"]
    does = ["sees", "follows", "waits for", "sings to", "forgets"]
    where = ["in the garden", "by the river", "at night", "under a tree"]
    return "".join(f"{r.choice(who)} {r.choice(does)} {r.choice(who)} {r.choice(where)}.\n" for _ in range(n_sentences))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, x):
        q, k, v = (y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=-1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, n_letters):
        super().__init__()
        self.letters, self.places = nn.Embedding(n_letters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, n_letters)

    def forward(self, ids):
        x = self.letters(ids) + self.places.weight[:ids.shape[1]]
        return self.head(self.norm(self.blocks(x)))

    def loss(self, ids):
        """Of each character except the first, given those before it."""
        return F.cross_entropy(self(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def batch(ids):
    starts = tally.randint(0, len(ids) - CONTEXT, (BATCH, 1))
    return ids[starts + tally.arange(CONTEXT + 1)]


def speak(model, letters, n):
    ids = [letters.index("\n") if "\n" in letters else 0]  # as if a line had just ended
    with tally.no_grad():
        while len(ids) <= n:
            logits = model(tally.tensor([ids[-CONTEXT:]]))[0, -1]
            ids.append(tally.multinomial(logits.softmax(-1), 1).item())
    return "".join(letters[i] for i in ids[1:])


def train(text, steps, say=print):
    tally.manual_seed(1)
    letters = sorted(set(text))
    places = {letter: i for i, letter in enumerate(letters)}
    ids = tally.tensor([places[letter] for letter in text])
    model = Model(len(letters))
    price = tally.price(lambda m, x: m.loss(x).backward(), model, ((BATCH, CONTEXT + 1), tally.int64))
    say(f"{sum(p.numel() for p in model.parameters())} parameters, {len(text)} characters of {len(letters)} kinds")
    say(f"a step costs {price.flops} FLOPs, moves {price.bytes} bytes, and holds {price.peak} at its peak")
    optimizer = tally.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(steps):
        loss = model.loss(batch(ids))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 20 == 0 or step == steps - 1:
            say(f"step {step:4}  loss {losses[-1]:.4f}  (guessing: {math.log(len(letters)):.4f})")
    return model, letters, ids, price, losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--text", help="a file of text")
    options = parser.parse_args()
    text = open(options.text, encoding="utf-8").read() if options.text else make_text()
    model, letters, *_ = train(text, options.steps)
    print(speak(model, letters, 200))
