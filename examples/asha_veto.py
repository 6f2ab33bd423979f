"""A search for a learning rate by ASHA, with and without a veto for runs whose plateau is about to end.

    python examples/asha_veto.py --repeats 3 --out results/asha-veto.csv

A small Transformer must find one marked token among 24; three quarters of the answers are wrong, so that a high
learning rate ends at a higher loss. A low one stays longer on its plateau, where ASHA compares it with runs that have
left theirs: once, at about half of the longest plateau (of seed 0, with which the setting was chosen). The loss is that
on right answers. Each search tries the same five rates in a random order: without pruning, with ASHA (Optuna's
successive halving), and with ASHA and the veto.
"""

import argparse
import csv
import sys

import optuna
import torch
from torch import nn

from unstuck import Watch
from unstuck.attach.optuna_pruner import VetoPruner
from unstuck.attach.veto import EXIT_PROBABILITY, exit_probability

T, TOKENS, WIDTH, BATCH, BUDGET, EVERY = 24, 32, 64, 32, 6000, 100
COMPARED = 800  # step of the comparison; the next one would be at 8 times that
RATES = [8e-3, 4e-3, 2e-3, 1e-3, 5e-4]
WRONG = 0.75  # share of answers in training that are random


def draw(n, rng):
    """Sequences of tokens below 32, one of them marked: 32 is added to it. The answer is the marked token."""
    tokens, marked = torch.randint(TOKENS, (n, T), generator=rng), torch.randint(T - 1, (n,), generator=rng)
    answers = tokens[torch.arange(n), marked].clone()
    tokens[torch.arange(n), marked] += TOKENS
    return tokens, answers


class Search:
    """The objective of a study; counts the steps that it spends."""

    def __init__(self, seed):
        self.seed, self.steps = seed, 0

    def __call__(self, trial):
        lr = trial.suggest_categorical("lr", RATES)
        torch.manual_seed(self.seed)
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=2 * WIDTH, dropout=0, batch_first=True)
        model = nn.Sequential(nn.Embedding(2 * TOKENS, WIDTH), layer, nn.Linear(WIDTH, TOKENS))
        optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        rng = torch.Generator().manual_seed(self.seed)
        inputs, answers = draw(512, rng)
        watch = Watch(model, inputs[:64], targets=inputs[:64] >= TOKENS, every=EVERY // 4)
        for step in range(1, BUDGET + 1):
            tokens, right = draw(BATCH, rng)
            noise = torch.rand(BATCH, generator=rng) < WRONG
            given = torch.where(noise, torch.randint(TOKENS, (BATCH,), generator=rng), right)
            loss = nn.functional.cross_entropy(model(tokens)[:, -1], given)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.steps += 1
            watch(step, loss=loss)
            if step % EVERY == 0:
                with torch.no_grad():
                    judged = nn.functional.cross_entropy(model(inputs)[:, -1], answers).item()
                trial.report(judged, step)
                trial.set_user_attr(EXIT_PROBABILITY, exit_probability(watch.forecast(), BUDGET))
                if trial.should_prune():
                    raise optuna.TrialPruned
        return judged


def searched(name, pruner, seed):
    study = optuna.create_study(pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=seed))
    order = torch.randperm(len(RATES), generator=torch.Generator().manual_seed(seed)).tolist()
    for i in order:
        study.enqueue_trial({"lr": RATES[i]})
    search = Search(seed)
    study.optimize(search, n_trials=len(RATES))
    pruned = [t.params["lr"] for t in study.trials if t.state == optuna.trial.TrialState.PRUNED]
    return {
        "repeat": seed,
        "search": name,
        "best rate": study.best_params["lr"],
        "loss": round(study.best_value, 4),
        "steps": search.steps,
        "pruned": " ".join(f"{lr:g}" for lr in sorted(pruned)),
    }


def asha():
    return optuna.pruners.SuccessiveHalvingPruner(min_resource=COMPARED, reduction_factor=8)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=11)
    parser.add_argument("--out", help="a CSV file for the table")
    args = parser.parse_args()
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    rows = []
    for seed in range(args.first_seed, args.first_seed + args.repeats):
        for name, pruner in (
            ("all runs to the end", optuna.pruners.NopPruner()),
            ("ASHA", asha()),
            ("ASHA and veto", VetoPruner(asha())),
        ):
            rows.append(searched(name, pruner, seed))
            print(rows[-1], flush=True)
    if args.out:
        with open(args.out, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
