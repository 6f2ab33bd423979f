"""recall-benchmarks: its runs, and what it concludes from a table."""

import math

import pandas as pd

from unstuck.papers.emergence import recall_benchmarks


def curve(task, layers, seed, accuracies, crossing):
    return pd.DataFrame(
        {
            "run_id": f"{task} {layers} {seed}",
            "task": task,
            "layers": layers,
            "seed": seed,
            "step": [100 * i for i in range(len(accuracies))],
            "test_accuracy": accuracies,
            "crossing_0.9": crossing,
            "chance": 0.25,
            "wanted": 8,
        }
    )


def test_every_task_is_run_with_one_layer_and_with_two():
    for profile in ("quick", "cpu"):
        specs = [run.spec for run in recall_benchmarks.runs(profile)]
        assert len({spec.run_id for spec in specs}) == 8
        assert {(s.task_name, s.model.layers, s.seed) for s in specs} == {
            (task, layers, seed) for task in ("mqar", "induction_heads") for layers in (1, 2) for seed in (0, 1)
        }
        assert all(s.model_name == "gpt" and s.model.layer_norm and s.train.thresholds[-1] == 0.9 for s in specs)


def test_claims_say_the_step_or_that_a_run_has_not_emerged():
    parts = [
        curve("MQAR", 2, 0, [0.0, 0.3, 0.95], 180.4),
        curve("MQAR", 2, 1, [0.0, 0.3, 0.3, 0.95], 270.0),
        curve("MQAR", 1, 0, [0.2] * 9, math.nan),
    ]
    table = pd.concat(parts, ignore_index=True)
    two, _, one, end = recall_benchmarks.compare(table)[1:]
    assert recall_benchmarks.compare(table)[0].ours == "3 of 8"
    assert two.ours == "180, 270"
    assert one.ours == ">800"
    assert end.ours == "0.20"
    assert {claim.verdict for claim in recall_benchmarks.compare(table)} == {"new"}
    axes = recall_benchmarks.draw(table).axes
    assert [ax.get_title() for ax in axes] == ["MQAR", "induction heads"]
    assert [len(ax.lines) for ax in axes] == [4, 0]  # three curves and chance
