"""What the published figures of paper 2 show, as numbers, measured on the authors' stored plots, to about 0.01.

A published step t is measured after t + 1 updates (`updates`). KL is that of each truth A*_{1:i} to the model, or of
each model of restricted context and then of the truth, in the order of the figure's legend.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

#: What would tell chance from a difference in setting, where a figure has no better experiment.
MORE_SEEDS = "three more training seeds of this setting would tell: the published curve is one run"


@dataclass(frozen=True)
class Published:
    """Values of one published figure; empty where it shows none."""

    stages: tuple[float, ...] = ()  # steps at which the authors' shading changes
    kl: Mapping[int, tuple[float, ...]] = field(default_factory=dict)  # by step
    loss: Mapping[int, float] = field(default_factory=dict)  # validation loss, by step
    minima: tuple[tuple[float, float], ...] = ()  # lowest KL to each model of restricted context, and its step
    specialisation: Mapping[int, float] = field(default_factory=dict)  # by step
    decides: str = MORE_SEEDS  # the experiment that would decide, where ours differs


def updates(step: float) -> float:
    """The number of updates after which a published step is measured."""
    return step + 1


FIG1 = Published(
    stages=(330, 575),
    kl={
        200: (1.08, 0.86, 0.89),
        400: (1.53, 0.37, 0.40),
        500: (1.75, 0.32, 0.35),
        700: (2.24, 0.56, 0.16),
        1095: (2.78, 0.70, 0.09),
    },
    loss={1095: 0.596},
    specialisation={150: 0.00, 1000: 0.72},
)
#: In the authors' public trainer validation follows every update and leaves the model in evaluation mode until the next
#: pass, which has three updates. The trainer of Figures 1 to 9 is not public, but Figure 3's numbers come out that way.
_EVERY_UPDATE = (
    "ours applies dropout in every update here; applied in one of three, as in the authors' public trainer, Figure 3 "
    "left agrees at all published steps"
)
FIG2 = Published(specialisation={0: 0.0, 60: 0.10, 300: 0.40, 1000: 0.77})
FIG2_MASS = (0.44, 0.59, 0.71)  # of the three heads on the nearest group at step 60, smallest first
FIG3_LEFT = Published(
    stages=(65, 450),
    kl={
        60: (1.47, 1.01, 0.97),
        100: (1.69, 0.65, 0.62),
        200: (1.98, 0.43, 0.46),
        600: (2.79, 0.71, 0.22),
        995: (3.06, 0.79, 0.20),
    },
)
FIG3_EVERY = replace(FIG3_LEFT, decides=_EVERY_UPDATE)
FIG3_RIGHT = Published(
    kl={300: (0.96, 0.28, 0.45), 995: (1.78, 0.73, 0.19)},
    minima=((0.37, 62), (0.25, 164)),
    decides=f"{_EVERY_UPDATE}: incremental-fig3-right-once would tell",
)
FIG3_RIGHT_ONCE = replace(FIG3_RIGHT, decides=MORE_SEEDS)
FIG7 = Published(
    stages=(330, 580),
    kl={
        270: (1.07, 0.84, 0.87),
        400: (1.49, 0.38, 0.42),
        500: (1.65, 0.29, 0.32),
        750: (2.29, 0.56, 0.05),
        1990: (2.62, 0.61, 0.018),
    },
    loss={1990: 0.527},
)
FIG6 = Published(specialisation={0: 0.0, 270: 0.01, 580: 0.43, 1500: 0.83})
_TEACHER_M = (
    "the published loss minus KL is 0.20, which this teacher has at m of about 2.9, not 1.7 (0.43): "
    "incremental-fig9-m has that setting, where specialisation and loss are as published"
)
FIG8 = Published(specialisation={0: 0.0, 70: 0.03, 375: 0.46, 1500: 0.80}, decides=_TEACHER_M)
FIG9 = Published(
    stages=(90, 410),
    kl={90: (1.22, 1.55, 1.49), 200: (1.82, 0.63, 0.74), 500: (2.47, 0.89, 0.39), 995: (2.93, 1.04, 0.27)},
    loss={995: 0.474},
    decides=_TEACHER_M,
)
FIG9_M = replace(
    FIG9,
    decides="the published KL to A1 and A1:2 at step 995 lie between ours at m = 1.7 and 2.9, the teacher's entropy at "
    "2.9: runs with m of about 2.4 and other teachers of that entropy would tell whether the teacher was another one",
)
FIG11 = Published(
    stages=(180, 370),
    kl={100: (1.53, 1.17, 1.12), 300: (2.03, 0.45, 0.42), 500: (3.40, 0.70, 0.10), 995: (4.61, 0.93, 0.07)},
    loss={995: 0.338},
)
FIG12 = Published(
    stages=(70, 200),
    kl={70: (1.58, 1.00, 0.90), 200: (1.90, 0.63, 0.50), 400: (2.53, 0.68, 0.25), 995: (3.39, 0.82, 0.15)},
    loss={995: 0.459},
    decides="the size of the published training set is not known, nor how often dropout is applied: "
    "incremental-fig12-once and runs with 3,000 and 27,000 sequences would tell",
)
FIG12_ONCE = replace(
    FIG12, decides="the size of the published training set is not known: runs with 3,000 and 27,000 would tell"
)
FIG13 = Published(
    stages=(130, 280), kl={400: (1.25, 0.32, 0.10), 995: (1.40, 0.38, 0.09)}, minima=((0.54, 114), (0.13, 228))
)
FIG14 = Published(specialisation={0: 0.02, 100: 0.03, 200: 0.30, 1000: 0.68})
FIG15 = Published(
    stages=(150, 700),
    kl={100: (0.38, 0.58, 0.71), 400: (0.72, 0.21, 0.30), 1000: (1.17, 0.31, 0.15), 1900: (1.51, 0.41, 0.15)},
    loss={1900: 0.46},
)
#: At step 1,900: the pair of lags that each head attends most, head by head, and its attention a lag.
FIG16_LAGS = {(1, 2): 0.27, (5, 6): 0.26, (3, 4): 0.27}
FIG17_LAGS = {(7, 8): 0.25, (3, 4): 0.35, (1, 2): 0.33, (5, 6): 0.30}
_SGD_M = "m of the published run is not known (2 in the public settings): runs with task.m=1.7 and 2.3 would tell"
FIG18 = Published(
    stages=(600, 4000), kl={600: (0.43, 0.54, 0.76), 2000: (0.75, 0.17, 0.35), 6980: (1.56, 0.39, 0.18)}, decides=_SGD_M
)
FIG19 = Published(specialisation={0: 0.0, 600: 0.14, 3800: 0.39, 6600: 0.71}, decides=_SGD_M)
FIGB = Published(specialisation={300: 0.02, 400: 0.34, 600: 0.52, 800: 0.70, 1900: 0.82})
FIGB_MASS = (0.91, 0.83, 0.71)  # the last query's attention on its own group, largest first, at step 1,900
FIGB_ALIGNMENT = (7080.0, 3090.0, 1270.0)  # <V_h, A_k> of a group's own head at step 1,900, strongest group first

#: Figure 4: loss above the teacher's, by start of the queries or by m, by step.
FIG4_STARTS: dict[str, dict[int, float]] = {
    "xavier": {200: 0.50, 300: 0.38, 400: 0.30, 500: 0.14},
    "0.001": {200: 0.87, 300: 0.41, 400: 0.34, 500: 0.21},
    "1e-06": {500: 0.33, 600: 0.19},
    "1e-09": {400: 0.41, 600: 0.30, 800: 0.11},
    "0.0": {990: 0.86},
}
FIG4_RATIOS: dict[float, dict[int, float]] = {
    1.0: {100: 1.02, 200: 0.09, 300: 0.07},
    1.3: {100: 1.09, 200: 0.51, 300: 0.10},
    1.5: {100: 1.00, 200: 0.50, 300: 0.30},
}
FIG4_END = 0.09  # where all but the start at exactly 0 end: 0.09 to 0.10

#: Figure 5, by sequences (0: new ones at every step): best loss above the teacher's, its step, KL to c = 2, 4, 6 there.
FIG5_BEST = {600: 1.33, 2000: 0.81, 9000: 0.09, 0: 0.02}
FIG5_STEP = {600: 70, 2000: 259, 9000: 762}
FIG5_KL = {600: (1.1, 1.5, 1.7), 2000: (1.4, 0.8, 1.0), 9000: (2.0, 0.45, 0.05)}
FIG5_LATE = (600, 990, (5.7, 5.3, 5.7))  # sequences, step, KL to c = 2, 4, 6
