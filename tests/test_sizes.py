"""The vocabulary and the context of language models, whatever their tables are called and wherever they stand."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import unstuck
from unstuck.attach.sizes import Sizes, sizes_of

VOCABULARY, CONTEXT, WIDTH = 20, 64, 16  # the context is the longer table


class Model(nn.Module):
    """A causal language model with one layer; layouts differ in its tables."""

    context = CONTEXT

    def __init__(self):
        super().__init__()
        self.tables()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        if tokens.shape[1] > CONTEXT:
            raise IndexError
        x = self.embed(tokens)
        q, k, v = self.qkv(x).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        return self.out(x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

    def places(self, tokens):
        return torch.arange(tokens.shape[1])


class NanoGPT(Model):
    def tables(self):
        self.transformer = nn.ModuleDict({"wte": nn.Embedding(VOCABULARY, WIDTH), "wpe": nn.Embedding(CONTEXT, WIDTH)})

    def embed(self, tokens):
        return self.transformer.wte(tokens) + self.transformer.wpe(self.places(tokens))


class Short(Model):
    def tables(self):
        self.tok, self.pe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)

    def embed(self, tokens):
        return self.tok(tokens) + self.pe(self.places(tokens))[None]


class PositionsFirst(Model):
    """Names that say nothing, and positions of each sequence."""

    def tables(self):
        self.first, self.second = nn.Embedding(CONTEXT, WIDTH), nn.Embedding(VOCABULARY, WIDTH)

    def embed(self, tokens):
        return self.first(self.places(tokens).expand_as(tokens)) + self.second(tokens)


class Shifted(Model):
    """Positions begin behind two rows for padding, as those of OPT."""

    def tables(self):
        self.a, self.b = nn.Embedding(CONTEXT + 2, WIDTH), nn.Embedding(VOCABULARY, WIDTH)

    def embed(self, tokens):
        return self.a(self.places(tokens) + 2) + self.b(tokens)


class Segments(Model):
    def tables(self):
        self.kinds, self.a, self.b = (nn.Embedding(n, WIDTH) for n in (100, VOCABULARY, CONTEXT))

    def embed(self, tokens):
        return self.kinds(torch.zeros_like(tokens)) + self.a(tokens) + self.b(self.places(tokens))


class Parameter(Model):
    def tables(self):
        self.tok, self.pe = nn.Embedding(VOCABULARY, WIDTH), nn.Parameter(torch.zeros(1, CONTEXT, WIDTH))

    def embed(self, tokens):
        return self.tok(tokens) + self.pe[:, : tokens.shape[1]]


class NoPositions(Model):
    context = None

    def tables(self):
        self.tok = nn.Embedding(VOCABULARY, WIDTH)

    def embed(self, tokens):
        return self.tok(tokens)


LAYOUTS = [NanoGPT, Short, PositionsFirst, Shifted, Segments, Parameter, NoPositions]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tables_are_known_by_what_they_take(layout):
    model = layout()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    assert sizes_of(model) == Sizes(VOCABULARY, layout.context)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))


@pytest.mark.parametrize("layout", [Short, PositionsFirst])
def test_induction_is_tested_on_tokens_of_the_vocabulary(layout, tmp_path):
    model = layout()
    watch = unstuck.watch(model, torch.optim.SGD(model.parameters()), out=tmp_path / "run", trackers=())
    assert watch.watch.random.shape[1] == 48
    assert watch.watch.random.max() < VOCABULARY
    watch.close()


@pytest.mark.parametrize("tied", [False, True])
def test_a_model_that_cannot_be_run_is_read_by_its_output(tied):
    """Of two tables the one that is tied to the output, or as long as the output is wide."""

    class Broken(Short):
        def tables(self):
            self.long, self.tok = nn.Embedding(CONTEXT, WIDTH), nn.Embedding(VOCABULARY, WIDTH)

        def forward(self, tokens):
            raise ValueError

    model = Broken()
    if tied:
        model.out = nn.Linear(WIDTH, VOCABULARY, bias=False)
        model.other = nn.Linear(WIDTH, CONTEXT)  # as wide as the other table is long
        model.out.weight = model.tok.weight
    assert sizes_of(model).vocabulary == VOCABULARY


def test_a_configuration_that_names_fewer_tokens_than_the_table_counts():
    model = Short()
    model.config = {"vocab_size": VOCABULARY - 3, "block_size": CONTEXT - 1}
    assert sizes_of(model) == Sizes(VOCABULARY - 3, CONTEXT - 1)
    model.config = {"vocab_size": 1000}
    assert sizes_of(model) == Sizes(VOCABULARY, CONTEXT)
