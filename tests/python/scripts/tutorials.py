"""What PyTorch's first tutorials do: tensors, autograd, nn, a classifier of pictures, DataLoader, save and load, a
character RNN, a sequence-to-sequence model with attention, a transformer, TensorBoard. test_torch_scripts.py runs it
with torch and with Tally, and compares what it prints as JSON.

    python tutorials.py FOLDER
"""
import json
import math
import os
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import CosineAnnealingLR, StepLR
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split
from torch.utils.tensorboard import SummaryWriter

folder = sys.argv[1]
random = np.random.default_rng(7)
found = {}


def numbers(*shape):
    return torch.from_numpy(random.standard_normal(shape).astype("float32"))


def filled(module):
    """The same initial weights for both libraries."""
    with torch.no_grad():
        for _, p in sorted(module.named_parameters()):
            p.copy_(0.3 * numbers(*p.shape))
    return module


# ---- Tensors, autograd ----

x = torch.ones(4, 4)
x[:, 1] = 0
y = torch.cat([x, x], dim=1)
agg = (x @ x.T).sum()
found["tensors"] = [y.tolist(), agg.item(), x.mul(x).numpy().tolist(), torch.ones_like(x, dtype=torch.float).shape[0]]
a = torch.tensor([2., 3.], requires_grad=True)
b = torch.tensor([6., 4.], requires_grad=True)
Q = 3 * a**3 - b**2
Q.backward(gradient=torch.tensor([1., 1.]))
found["autograd"] = [a.grad.tolist(), b.grad.tolist(), (9 * a**2 == a.grad).all().item()]

xs = torch.linspace(-math.pi, math.pi, 200)
ys = torch.sin(xs)
model = filled(nn.Sequential(nn.Linear(3, 1), nn.Flatten(0, 1)))
features = xs.unsqueeze(-1).pow(torch.tensor([1, 2, 3])) / 10
losses = []
for t in range(20):
    loss = nn.MSELoss(reduction="sum")(model(features), ys)
    losses.append(loss.item())
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for param in model.parameters():
            param -= 1e-4 * param.grad
found["polynomial"] = losses


# ---- A classifier of pictures ----

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.bn = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 8, 3, padding=1)
        self.fc1 = nn.Linear(8 * 3 * 3, 16)
        self.drop = nn.Dropout(0.0)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        x = self.pool(F.relu(self.bn(self.conv1(x))))
        x = self.pool(F.relu(self.conv2(x)))
        x = torch.flatten(x, 1)
        return self.fc2(self.drop(F.relu(self.fc1(x))))


class Pictures(Dataset):
    def __init__(self, n, transform=None):
        self.images, self.labels = numbers(n, 3, 16, 16), torch.from_numpy(random.integers(0, 4, n))
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = self.images[i]
        return (self.transform(image) if self.transform else image), self.labels[i]


net, criterion = filled(Net()), nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
loader = DataLoader(Pictures(24, transform=lambda p: p * 0.5), batch_size=8, shuffle=False, num_workers=0)
losses = []
for epoch in range(2):
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = criterion(net(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
found["classifier"] = losses
net.eval()
correct = 0
with torch.no_grad():
    for inputs, labels in loader:
        _, predicted = torch.max(net(inputs).data, 1)
        correct += (predicted == labels).sum().item()
found["accuracy"] = correct
PATH = os.path.join(folder, "net.pth")
torch.save(net.state_dict(), PATH)
again = Net()
again.load_state_dict(torch.load(PATH, weights_only=True))
again.eval()
probe = numbers(2, 3, 16, 16)
found["saved"] = [torch.equal(net(probe), again(probe)), net(probe).flatten().tolist()]
train, test = random_split(TensorDataset(torch.arange(10)), [7, 3], generator=torch.Generator().manual_seed(1))
found["split"] = [len(train), len(test), sorted(int(v) for part in (train, test) for v, in part)]


# ---- A character RNN ----

class CharRNN(nn.Module):
    def __init__(self, n_in, n_hidden, n_out, kind):
        super().__init__()
        self.rnn = getattr(nn, kind)(n_in, n_hidden, num_layers=2, batch_first=True)
        self.h2o = nn.Linear(n_hidden, n_out)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, line):
        out, hidden = self.rnn(line)
        return self.softmax(self.h2o(out[:, -1]))


for kind in ("RNN", "LSTM", "GRU"):
    rnn, criterion, losses = filled(CharRNN(5, 8, 3, kind)), nn.NLLLoss(), []
    optimizer = optim.Adam(rnn.parameters(), lr=0.01)
    lines = F.one_hot(torch.from_numpy(random.integers(0, 5, (6, 7))), 5).float()
    target = torch.from_numpy(random.integers(0, 3, 6))
    for _ in range(3):
        loss = criterion(rnn(lines), target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(rnn.parameters(), 3)
        optimizer.step()
        losses.append(loss.item())
    found[kind] = losses


# ---- Sequence to sequence, with attention ----

class Encoder(nn.Module):
    def __init__(self, n, hidden):
        super().__init__()
        self.embedding, self.dropout = nn.Embedding(n, hidden), nn.Dropout(0)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)

    def forward(self, input):
        return self.gru(self.dropout(self.embedding(input)))


class Decoder(nn.Module):
    def __init__(self, hidden, n):
        super().__init__()
        self.embedding = nn.Embedding(n, hidden)
        self.Wa, self.Ua, self.Va = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 1)
        self.gru, self.out = nn.GRU(2 * hidden, hidden, batch_first=True), nn.Linear(hidden, n)

    def forward(self, keys, hidden, target):
        outputs = []
        for i in range(target.size(1)):
            query = hidden.permute(1, 0, 2)
            scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys))).squeeze(2).unsqueeze(1)
            context = torch.bmm(F.softmax(scores, dim=-1), keys)
            step = torch.cat((self.embedding(target[:, i].unsqueeze(1)), context), dim=2)
            output, hidden = self.gru(step, hidden)
            outputs.append(self.out(output))
        return F.log_softmax(torch.cat(outputs, dim=1), dim=-1)


encoder, decoder = filled(Encoder(9, 8)), filled(Decoder(8, 9))
optimizers = [optim.Adam(m.parameters(), lr=0.01) for m in (encoder, decoder)]
source, target = (torch.from_numpy(random.integers(0, 9, (4, 6))) for _ in range(2))
losses = []
for _ in range(3):
    for o in optimizers:
        o.zero_grad()
    keys, hidden = encoder(source)
    out = decoder(keys, hidden, target)
    loss = nn.NLLLoss()(out.view(-1, out.size(-1)), target.view(-1))
    loss.backward()
    for o in optimizers:
        o.step()
    losses.append(loss.item())
found["seq2seq"] = losses


# ---- A transformer, a schedule, TensorBoard ----

class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=50):
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[:x.size(0)]


class Language(nn.Module):
    def __init__(self, n, d, heads, hidden, layers):
        super().__init__()
        self.embedding, self.pos, self.d = nn.Embedding(n, d), PositionalEncoding(d), d
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, heads, hidden, dropout=0.0), layers)
        self.linear = nn.Linear(d, n)

    def forward(self, src):
        mask = nn.Transformer.generate_square_subsequent_mask(len(src))
        return self.linear(self.encoder(self.pos(self.embedding(src) * math.sqrt(self.d)), mask))


language = filled(Language(11, 8, 2, 16, 2))
optimizer = optim.SGD(language.parameters(), lr=0.5)
schedules = [StepLR(optimizer, 1, gamma=0.9), CosineAnnealingLR(optimizer, 10)]
data = torch.from_numpy(random.integers(0, 11, (7, 3)))
losses = []
with SummaryWriter(os.path.join(folder, "board")) as writer:
    for epoch in range(4):
        out = language(data[:-1])
        loss = F.cross_entropy(out.view(-1, 11), data[1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(language.parameters(), 0.5)
        optimizer.step()
        for s in schedules:
            s.step()
        losses.append(loss.item())
        writer.add_scalar("Loss/train", loss.item(), epoch)
        writer.add_scalar("lr", optimizer.param_groups[0]["lr"], epoch)
found["transformer"] = losses
found["rate"] = optimizer.param_groups[0]["lr"]
whole = filled(nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True))
found["encoder and decoder"] = whole(numbers(2, 5, 8), numbers(2, 4, 8)).flatten().tolist()[:9]
print(json.dumps(found))
