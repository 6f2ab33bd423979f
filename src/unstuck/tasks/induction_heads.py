"""The induction-heads task of the state-space papers (Fu et al. 2022; Gu and Dao 2023)."""

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from ._answered import Answered
from .task import Batch, World, config


@config
class InductionHeads(Answered):
    """Repeat the token that followed the special token `*` the first time.

        c a f * d b b e a c *        target: d

    All other tokens are drawn uniformly and independently. The special token stands at a random place, and again at
    the end, where the model is read. It has the index `tokens` and is never a target.

    The defaults are the setting of Mamba (Gu and Dao 2023, arXiv 2312.00752, Section 4.1.2): a vocabulary of 16, length
    256. That of H3 (Fu et al. 2022, arXiv 2212.14052, Section 3.1) is `tokens = 20, T = 30`. Here the special token is
    not counted in `tokens`, and both places of it are counted in `T`.
    """

    version: ClassVar[int] = 1  # raised when what is drawn changes
    discrete: ClassVar[bool] = True
    evaluation: ClassVar[int] = 2048
    decides: ClassVar[Literal["loss", "accuracy", "copy_advantage"]] = "accuracy"

    tokens: Annotated[int, Field(ge=2, le=65_535)] = 16  # size of the vocabulary without the special token
    T: Annotated[int, Field(ge=4, le=65_536)] = 256  # sequence length

    @property
    def chance(self) -> float:
        """The accuracy of a guess among all tokens. The most frequent token of a sequence is a better one: with 16
        tokens it is right in 10% of sequences of length 256 and in 15% of length 32."""
        return 1 / self.tokens

    @property
    def inputs(self) -> int:
        return self.tokens + 1

    @property
    def outputs(self) -> int:
        """As many as inputs, so that a read-out can be tied to the embedding."""
        return self.tokens + 1

    def sample(self, n: int, rng: torch.Generator, world: World) -> Batch:
        inputs = torch.randint(self.tokens, (n, self.T), generator=rng)
        first = torch.randint(self.T - 2, (n, 1), generator=rng)  # what follows it is not yet the end
        inputs.scatter_(1, first, self.tokens)
        inputs[:, -1] = self.tokens
        relevant = torch.zeros(n, self.T, dtype=torch.bool).scatter_(1, first + 1, True)
        return Batch(inputs, inputs.gather(1, first + 1)[:, 0], relevant)

    def links(self, batch: Batch) -> dict[str, Tensor]:
        """Copying: from the token after the special token to the special token."""
        return {"copy": torch.diag_embed(batch.relevant[:, 1:], offset=-1)}  # (n, T, T): row t, column t - 1
