"""A small Transformer that must find one marked token among 48, watched by one line: half a minute on one core.

python examples/quickstart.py
"""

import logging
import sys

import torch
from torch import nn

import unstuck

logging.basicConfig(stream=sys.stdout, format="%(message)s")
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(64, nhead=4, dim_feedforward=128, dropout=0, batch_first=True)
model = nn.Sequential(
    nn.Embedding(64, 64), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(64, 32)
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)


def draw(n):
    """Sequences of tokens below 32, one of them marked: 32 is added to it. The answer is the marked token."""
    tokens, marked = torch.randint(32, (n, 48)), torch.randint(47, (n,))
    answers = tokens[torch.arange(n), marked].clone()
    tokens[torch.arange(n), marked] += 32
    return tokens, answers


probe, _ = draw(64)
watch = unstuck.watch(model, optimizer, probe=probe, targets=probe >= 32, every=10, out="runs/quickstart")
for _ in range(600):
    tokens, answers = draw(64)
    loss = nn.functional.cross_entropy(model(tokens)[:, -1], answers)
    watch.loss(loss)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
