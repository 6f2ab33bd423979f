"""The settings of a flow, validated: T, d, B, p and the kind of flow (Sections 2.1 and 2.3)."""

from dataclasses import dataclass
from typing import Literal, get_args

from unstuck.errors import BadInput, nearest
from unstuck.scalars import real, whole

Kind = Literal["exact", "reduced"]

#: Largest sizes accepted. The tests cover the corners; beyond them double precision may not be sufficient.
MAX_T, MAX_D = 10**9, 10**7
#: Thresholds of the test loss, which starts at 1/2.
MIN_THRESHOLD, MAX_THRESHOLD = 1e-6, 0.499999


def check_threshold(threshold: object) -> float:
    allowed = f"a number from {MIN_THRESHOLD:g} to {MAX_THRESHOLD:g}: the loss before training is 0.5"
    return real("threshold", threshold, MIN_THRESHOLD, MAX_THRESHOLD, allowed)


@dataclass(frozen=True)
class Setting:
    """One single-location regression problem for the toy model of Eq. 2.

        x_1  x_2  ...  x_{T-B}  [x_T ... x_T]        y* = W* x_T
                                 the last B tokens are equal

    With probability `p` the relevant token is the fixed token x~ (cross-sample repetition).
    """

    T: int  # sequence length
    d: int  # dimension of a token
    B: int = 1  # copies of the relevant token in the context
    p: float = 0.0  # chance that the relevant token is the one frequent token
    kind: Kind = "exact"  # which flow: the model's own, or the paper's reduction (erratum 6)

    def __post_init__(self) -> None:
        def keep(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        keep("T", whole("T", self.T, 2, MAX_T, f"a whole number from 2 to {MAX_T}"))
        keep("d", whole("d", self.d, 1, MAX_D, f"a whole number from 1 to {MAX_D}"))
        keep("B", whole("B", self.B, 1, self.T - 1, f"a whole number from 1 to T - 1 = {self.T - 1}"))
        keep("p", real("p", self.p, 0.0, 1.0, "a number from 0 to 1"))
        if self.kind not in get_args(Kind):
            raise BadInput("flow", self.kind, "'exact' or 'reduced'" + nearest(str(self.kind), get_args(Kind)))

    @property
    def mobility(self) -> float:
        """Speed of Δa per unit of -dL/dΔa.

        In the reduction Δa is the parameter, and the speed is 1. In the model of Eq. 2 the T scores are the parameters;
        B relevant and T - B other scores share the gradient, and the speed is 1/B + 1/(T - B) (erratum 6).
        """
        return 1.0 if self.kind == "reduced" else self.T / (self.B * (self.T - self.B))
