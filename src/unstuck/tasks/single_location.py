"""Single-location linear regression, as the toy model sees it (Section 2.1): the relevant token is the last one."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SingleLocation:
    """Regress on the one token that matters.

        x_1  x_2  ...  x_{T-B}  [x_T ... x_T]        y* = W* x_T
                                 ^ the last B tokens are the same one

    With probability p the relevant token is the first basis vector (cross-sample repetition). Zucchet et al.
    2025, Section 2.1 and A.2.
    """

    T: int = 256  # sequence length
    d: int = 256  # token dimension
    B: int = 1  # copies of the relevant token
    p: float = 0.0  # chance that it is the one frequent token

    def target(self, rng: torch.Generator) -> Tensor:
        """W*, entries N(0, 1/d): its columns have norm one on average (Assumption 3 holds for large d only)."""
        return torch.randn(self.d, self.d, generator=rng) / self.d**0.5

    def relevant(self, n: int, rng: torch.Generator) -> Tensor:
        """n draws of the relevant token, (n, d)."""
        x = torch.randn(n, self.d, generator=rng) / self.d**0.5
        if self.p > 0:
            frequent = torch.rand(n, generator=rng) < self.p
            x[frequent] = torch.eye(1, self.d)
        return x

    def sample(self, n: int, rng: torch.Generator) -> Tensor:
        """n sequences, (n, T, d). The target of a sequence is W* times its last token."""
        tokens = torch.randn(n, self.T, self.d, generator=rng) / self.d**0.5
        tokens[:, self.T - self.B :] = self.relevant(n, rng)[:, None]
        return tokens
