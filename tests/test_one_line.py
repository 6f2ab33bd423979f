"""Four scripts of strangers, each with one line more: the same bits, the right attention, a curve on disk."""

import logging
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import unstuck
from unstuck.attach import attention_maps
from unstuck.columns import COPY_ADVANTAGE
from unstuck.probes.attention import induction_score
from unstuck.store.store import RunDirectory

HERE = Path(__file__).parent / "strangers"
LINES = {
    "nanogpt_loop": "watch = unstuck.watch(model, optimizer)",
    "llama_trainer": "    callbacks=[unstuck.TrainerCallback()],",
    "lightning_module": "    callbacks=[unstuck.LightningCallback()],",
    "einsum_attention": "watch = unstuck.watch(model, optimizer)",
}


def run(name, line):
    source = (HERE / f"{name}.py").read_text()
    assert source.count("# ATTACH") == 1
    marked = next(row for row in source.splitlines() if "# ATTACH" in row)
    there = {"__name__": "__main__", "unstuck": unstuck}
    exec(compile(source.replace(marked, line), name, "exec"), there)
    return there


def attached(there):
    if "watch" in there:
        return there["watch"]
    handler = there["trainer"].callback_handler if hasattr(there["trainer"], "callback_handler") else there["trainer"]
    return next(c.watch for c in handler.callbacks if type(c).__module__.startswith("unstuck"))


def causal(scores):
    ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(ahead, -math.inf).softmax(-1)


def by_hand(name, model, tokens):
    """The attention of each layer, computed without the package."""
    if name == "llama_trainer":
        model.set_attn_implementation("eager")
        found = model(tokens, output_attentions=True).attentions
        model.set_attn_implementation("sdpa")
        return found
    seen = []

    def keep(module, args, kwargs):
        x = args[0]
        if name == "nanogpt_loop":
            q, k, _ = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in module.c_attn(x).split(32, 2))
        elif name == "einsum_attention":
            q, k = (f(x).unflatten(-1, (4, 8)).transpose(1, 2) for f in (module.q, module.k))
        else:
            q, k, _ = (
                t.unflatten(-1, (4, 8)).transpose(1, 2)
                for t in torch.nn.functional.linear(x, module.in_proj_weight, module.in_proj_bias).split(32, 2)
            )
        seen.append(causal(q @ k.mT / math.sqrt(8)))

    kinds = {"CausalSelfAttention", "Attention", "MultiheadAttention"}
    hooks = [m.register_forward_pre_hook(keep, with_kwargs=True) for m in model.modules() if type(m).__name__ in kinds]
    model(tokens)
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize("name", LINES)
def test_one_line_is_enough(name, tmp_path, monkeypatch, caplog):
    if name == "llama_trainer":
        pytest.importorskip("transformers")
    if name == "lightning_module":
        pytest.importorskip("lightning.pytorch")
    (tmp_path / "plain").mkdir()
    monkeypatch.chdir(tmp_path / "plain")
    plain = run(name, "")
    before = {path.name for path in Path().iterdir()}
    monkeypatch.chdir(tmp_path)
    with caplog.at_level(logging.INFO, "unstuck"):
        watched = run(name, LINES[name])
    model, watch = watched["model"], attached(watched)
    for (key, a), b in zip(plain["model"].state_dict().items(), model.state_dict().values(), strict=True):
        assert torch.equal(a, b), key
    watch.close()
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING], caplog.text
    saved = RunDirectory(watch.out).curve()
    assert saved.steps[0] == 0
    assert saved.steps[-1] == watch.step == 30
    assert {path.name for path in Path().iterdir()} - before - {"plain"} <= {"runs", "unstuck"}

    model.eval()
    tokens = watch.watch.random
    assert tokens.shape[1] == {"nanogpt_loop": 32, "einsum_attention": 24, "lightning_module": 40}.get(name, 48)
    with torch.no_grad():
        expected = by_hand(name, model, tokens)
    found = attention_maps(model, watch.watch.repeated)
    assert len(found) == len(expected) == 2
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, atol=1e-5)
    row = watch.watch.measure()
    scores = torch.stack([induction_score(weights, tokens.shape[1] // 2) for weights in expected])
    measured = [[row[f"induction_{layer}_{head}"] for head in range(4)] for layer in range(2)]
    assert np.allclose(measured, scores, atol=1e-5)
    assert math.isfinite(row[COPY_ADVANTAGE])


def test_the_loss_of_a_row_is_that_of_its_steps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    there = run("nanogpt_loop", "watch = unstuck.watch(model, optimizer, every=10)")
    curve = there["watch"].curve
    assert curve.steps.tolist() == [0, 10, 20, 30]
    expected = np.array(there["losses"]).reshape(3, 20).mean(1)  # ten steps of two batches
    assert np.allclose(curve.values("train_loss")[1:], expected, rtol=1e-5)
    there = run("einsum_attention", "watch = unstuck.watch(model, optimizer, every=10)")
    assert there["watch"].curve.loss_name is None
