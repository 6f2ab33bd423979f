"""Single-location linear regression (Sections 2.1 and B.1): only one of T tokens matters for the target."""

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from .task import Batch, Task, config

Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


@config
class SingleLocation(Task):
    """Regress on the one token that matters.

        x_1   x_2  [x_3]  x_4        y* = W* x_3
                     ^ flagged as relevant

    Tokens are N(0, I/d), and W* has entries N(0, 1/d). The loss is half the squared error: 0.5 for the trivial
    predictor. With B > 1 the relevant token appears at B distinct random positions. With probability p it is one fixed
    token x~, drawn once like any other; the text does not say which x~ the Transformer task uses, and the theory uses
    `frequent="basis"`. Zucchet et al. 2025, Sections 2.1 and B.1.
    """

    version: ClassVar[int] = 1  # raised when what is drawn changes

    T: Annotated[int, Field(ge=2, le=65_536)] = 64  # sequence length
    d: Annotated[int, Field(ge=1, le=65_536)] = 16  # token dimension
    B: PositiveInt = 1  # copies of the relevant token (in-context repetition)
    p: Probability = 0.0  # chance that it is the one frequent token (cross-sample repetition)
    position: Literal["random", "fixed", "last"] = "random"  # drawn for each sequence, once a run, or the end
    feature: bool = True  # one more input feature that is 1 on relevant tokens
    frequent: Literal["random", "basis"] = "random"  # the frequent token x~

    @classmethod
    def for_toy(cls, T: int = 256, d: int = 256, B: int = 1, p: float = 0.0) -> "SingleLocation":
        """The theory's version (A.2): the relevant tokens are the last B, unflagged, and x~ is a basis vector."""
        return cls(T=T, d=d, B=B, p=p, position="last", feature=False, frequent="basis")

    @model_validator(mode="after")
    def _solvable(self) -> "SingleLocation":
        if self.B >= self.T:
            raise ValueError(f"task.B is {self.B}, but must be below task.T = {self.T}")
        if self.position == "random" and not self.feature:
            raise ValueError(
                "task.feature is False with task.position 'random': nothing tells which token is relevant, so the "
                "task cannot be solved; set task.feature=true, or task.position=fixed"
            )
        return self

    @property
    def inputs(self) -> int:
        return self.d + self.feature

    @property
    def outputs(self) -> int:
        return self.d

    def world(self, rng: torch.Generator) -> dict[str, Tensor]:
        """W*, the frequent token x~, and the positions of the relevant tokens if these are fixed."""
        target = torch.randn(self.d, self.d, generator=rng) / self.d**0.5
        frequent = (
            torch.eye(self.d)[0] if self.frequent == "basis" else torch.randn(self.d, generator=rng) / self.d**0.5
        )
        if self.position == "last":
            positions = torch.arange(self.T - 1, -1, -1)
        else:  # not the last: the output is read there, so no attention would be needed
            drawn = torch.randperm(self.T - 1, generator=rng)
            positions = torch.cat([drawn[: self.B].flip(0), drawn[self.B :]])
        return {"target": target, "frequent": frequent, "positions": positions}

    def relevant(self, n: int, rng: torch.Generator, world: dict[str, Tensor]) -> Tensor:
        """n draws of the relevant token, (n, d)."""
        x = torch.randn(n, self.d, generator=rng) / self.d**0.5
        if self.p > 0:
            x = torch.where(torch.rand(n, 1, generator=rng) < self.p, world["frequent"], x)
        return x

    def sample(self, n: int, rng: torch.Generator, world: dict[str, Tensor]) -> Batch:
        tokens = torch.randn(n, self.T, self.d, generator=rng) / self.d**0.5  # (n, T, d)
        x = self.relevant(n, rng, world)
        if self.position == "random":  # B distinct positions a sequence: the B largest of T uniform numbers
            where = torch.rand(n, self.T, generator=rng).topk(self.B, dim=1).indices  # (n, B)
        else:
            where = world["positions"][: self.B].expand(n, self.B)
        tokens.scatter_(1, where[:, :, None].expand(-1, -1, self.d), x[:, None].expand(-1, self.B, -1))
        relevant = torch.zeros(n, self.T, dtype=torch.bool).scatter_(1, where, True)
        inputs = torch.cat([tokens, relevant[:, :, None].to(tokens.dtype)], 2) if self.feature else tokens
        return Batch(inputs, x @ world["target"].T, relevant)

    def clean(self) -> "SingleLocation":
        return replace(self, B=1, p=0.0)

    def primary(self) -> "SingleLocation":
        """The test data has no cross-sample repetition, and the training B (D.1)."""
        return replace(self, p=0.0)
