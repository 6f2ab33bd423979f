"""Attention by hand with einsum, and a loss outside of the model."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)) for f in (self.q, self.k, self.v))
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(q.shape[-1])
        ahead = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        weights = self.drop(scores.masked_fill(ahead, float("-inf")).softmax(dim=-1))
        return self.o(torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2))


class Model(nn.Module):
    def __init__(self, tokens=40, width=32, heads=4, layers=2):
        super().__init__()
        self.tok_emb = nn.Embedding(tokens, width)
        self.pos_emb = nn.Embedding(24, width)
        self.layers = nn.ModuleList(Attention(width, heads) for _ in range(layers))
        self.gate = nn.Linear(width, 8)
        self.out = nn.Linear(width, tokens)

    def forward(self, tokens):
        x = self.tok_emb(tokens) + self.pos_emb.weight[: tokens.shape[1]]
        for layer in self.layers:
            gate = self.gate(x).unflatten(-1, (2, 4)).softmax(-1)  # no attention
            x = x + layer(x) * gate.mean((2, 3))[..., None]
        return self.out(x)


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
# ATTACH
losses = []
for _ in range(30):
    tokens = torch.randint(40, (8, 24))
    loss = F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
