"""A watch that runs by itself: when it measures, what it finds, and that it never changes or ends a training."""

import copy
import io
import logging
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import unstuck
from refusals import names, refused
from unstuck.attach.closing import close_freed
from unstuck.attach.line import Line
from unstuck.attach.pace import AHEAD, LOSS_PART, Pace
from unstuck.columns import COPY_ADVANTAGE
from unstuck.curve import Curve
from unstuck.forecast import Forecaster, Outcome
from unstuck.forecast.notes import Notes
from unstuck.store.store import RunDirectory


class Tiny(nn.Module):
    """A causal language model; with targets it gives its loss."""

    def __init__(self, tokens=20, context=16, checkpointing=False):
        super().__init__()
        self.embed, self.pos = nn.Embedding(tokens, 16), nn.Embedding(context, 16)
        self.qkv, self.drop, self.out = nn.Linear(16, 48), nn.Dropout(0.1), nn.Linear(16, tokens)
        self.checkpointing = checkpointing

    def layer(self, x):
        q, k, v = self.qkv(x).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        return x + self.drop(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

    def forward(self, tokens, targets=None):
        x = self.embed(tokens) + self.pos(torch.arange(tokens.shape[1]))
        if self.checkpointing:
            x = torch.utils.checkpoint.checkpoint(self.layer, x, use_reentrant=False)
        else:
            x = self.layer(x)
        logits = self.out(x)
        return logits if targets is None else (logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten()))


def train(
    steps=12, *, watched=True, model=None, wrap=lambda m: m, tell=False, out=None, dtype=None, scaler=None, **options
):
    torch.manual_seed(0)
    model = Tiny() if model is None else model()
    trained = wrap(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    watch = unstuck.watch(trained, optimizer, out=out, every=4, **options) if watched else None
    losses = []
    context = model.pos.num_embeddings
    for _ in range(steps):
        tokens = torch.randint(20, (4, context + 1))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is not None):
            _, loss = trained(tokens[:, :-1], tokens[:, 1:])
        if tell and watch:
            watch.loss(loss)
        optimizer.zero_grad()
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        losses.append(loss.item())
    return model, watch, losses


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def in_place(model):
    model.compile(backend="eager")
    return model


@pytest.mark.parametrize(
    ("way", "finds"),
    [
        ({}, True),
        ({"model": lambda: Tiny(checkpointing=True)}, True),
        ({"dtype": torch.bfloat16}, True),
        ({"dtype": torch.bfloat16, "scaler": True}, True),
        ({"wrap": lambda m: torch.compile(m, backend="eager")}, True),
        ({"wrap": in_place}, False),
        ({"wrap": in_place, "tell": True}, True),
    ],
    ids=["plain", "checkpointing", "autocast", "scaler", "compiled", "compiled in place", "told"],
)
def test_the_bits_of_a_training_stay(tmp_path, way, finds):
    if way.get("scaler"):
        way = {**way, "scaler": torch.amp.GradScaler("cpu", init_scale=8.0)}
    torch.compiler.reset()
    alone, _, expected = train(watched=False, **way)
    torch.compiler.reset()
    model, watch, losses = train(out=tmp_path / "run", **way)
    assert losses == expected
    assert same(model, alone)
    assert watch.curve.steps.tolist() == [0, 4, 8, 12]
    assert "induction" in watch.curve.measures
    assert (watch.curve.loss_name == "train_loss") is finds
    if finds:
        means = np.array(losses).reshape(3, 4).mean(1)
        assert watch.curve.loss[1:] == pytest.approx(means, rel=1e-2 if "dtype" in way else 1e-5)


def test_a_context_shorter_than_the_test_of_induction(tmp_path):
    """It is found before training, which runs to its end: 16 tokens are enough for a shorter test, 4 are not."""
    _, watch, _ = train(out=tmp_path / "short")
    assert watch.watch.random.shape[1] == 16
    _, watch, _ = train(out=tmp_path / "shorter", model=lambda: Tiny(context=4))
    assert watch.step == 12
    assert watch.curve.measures == ["row_entropy", "distance"]  # on the first batch


def test_a_measurement_that_fails_does_not_end_a_training(tmp_path, caplog):
    class Moody(Tiny):
        broken = False

        def forward(self, tokens, targets=None):
            if self.broken and not torch.is_grad_enabled():
                raise ZeroDivisionError
            self.broken = self.broken or torch.is_grad_enabled()
            return super().forward(tokens, targets)

    _, watch, losses = train(out=tmp_path / "run", model=Moody)
    assert len(losses) == 12
    assert np.isfinite(watch.curve.best("induction")).tolist() == [True, False, False]
    assert watch.curve.steps.tolist() == [0, 4, 9]  # rows with a loss alone
    assert watch.curve.loss[1:] == pytest.approx([np.mean(losses[:4]), np.mean(losses[4:9])])
    assert [r.levelno for r in caplog.records if r.levelno >= logging.WARNING] == [logging.WARNING]

    model = Moody()
    explicit = unstuck.Watch(model, vocabulary=20, length=16, tokens=lambda x: (x, x), every=1)
    model.broken = True
    caplog.clear()
    assert explicit(1) is None
    assert explicit(2) is None
    assert len(caplog.records) == 1


def test_copies_and_files_of_a_watched_model(tmp_path):
    model, watch, _ = train(out=tmp_path / "run", steps=1)
    twin = copy.deepcopy(model)
    rows = len(watch.rows)
    tokens = torch.zeros(1, 8, dtype=torch.long)
    twin(tokens, tokens)[1].backward()
    assert (len(watch.rows), watch._losses._found) == (rows, [])
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert same(torch.load(file, weights_only=False), model)
    watch.close()
    assert not model._forward_hooks


def test_a_training_is_resumed_and_another_one_is_left_alone(tmp_path):
    _, first, _ = train(8, out=tmp_path / "run")
    first.close()
    _, resumed, _ = train(8, out=tmp_path / "run", step=8)
    resumed.close()
    assert resumed.out == tmp_path / "run"
    assert RunDirectory(tmp_path / "run").curve().steps.tolist() == [0, 4, 8, 12, 16]
    _, anew, _ = train(4, out=tmp_path / "run")
    anew.close()
    assert anew.out == tmp_path / "run-2"
    assert RunDirectory(tmp_path / "run").curve().steps.tolist() == [0, 4, 8, 12, 16]
    status = RunDirectory(tmp_path / "run").status()
    assert status["state"] == "watched"
    assert status["seconds"] > 0


def reading(lowest, highest, out, steps=4, model=None, step=0, **options):
    """A training on some of 40 tokens; also the model as it was before."""
    torch.manual_seed(0)
    model = Tiny(40) if model is None else model
    before = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = unstuck.watch(model, optimizer, out=out, every=2, step=step, trackers=(), **options)
    for _ in range(steps):
        tokens = torch.randint(lowest, highest, (8, 17))
        optimizer.zero_grad()
        model(tokens[:, :-1], tokens[:, 1:])[1].backward()
        optimizer.step()
    watch.close()
    return before, watch


def test_induction_is_tested_on_tokens_of_the_first_batch(tmp_path):
    """Of others a model knows nothing. All rows are of this test, that before the first step too."""
    before, watch = reading(10, 22, tmp_path / "run")
    assert set(watch.watch.random.unique().tolist()) == set(range(10, 22))
    assert watch.curve.steps.tolist() == [0, 2, 4]
    expected = unstuck.Watch(before, vocabulary=range(10, 22), length=16).tried
    assert {name: watch.rows[0][name] for name in expected} == expected
    saved = RunDirectory(watch.out)
    assert saved.status()["probe"] == watch.watch.seen_with
    assert saved.curve().values(COPY_ADVANTAGE)[0] == expected[COPY_ADVANTAGE]


def test_too_few_tokens_of_the_first_batch_or_a_vocabulary_of_the_user_leave_the_test(tmp_path):
    _, watch = reading(10, 17, tmp_path / "few")  # of 8 in a pass
    assert watch.watch.random.max() > 30
    _, watch = reading(10, 22, tmp_path / "given", vocabulary=range(30, 40))
    assert set(watch.watch.random.unique().tolist()) == set(range(30, 40))


def test_a_resumed_watch_goes_on_with_its_test(tmp_path):
    """Its first batch is another one."""
    for name, lowest in (("drawn", 10), ("whole", 16)):
        first, again = (lowest, 22), (20, 40)
        _, watch = reading(*first, tmp_path / name)
        _, resumed = reading(*again, tmp_path / name, model=watch.model, step=4)
        assert resumed.watch.random.equal(watch.watch.random)
        assert resumed.out == watch.out
        assert RunDirectory(resumed.out).curve().steps.tolist() == [0, 2, 4, 6, 8]
    _, anew = reading(20, 40, tmp_path / "drawn")
    assert anew.watch.random.min() >= 20


def test_a_watch_of_a_language_model_says_what_it_tells(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "unstuck"):
        reading(10, 22, tmp_path / "language")
        assert len([r for r in caplog.records if names(r.getMessage(), "induction heads", "loss", "not yet")]) == 1
        caplog.clear()
        probe = torch.randint(40, (4, 16))
        reading(10, 22, tmp_path / "named", probe=probe, targets=probe == probe[:, :1])
        assert not [r for r in caplog.records if names(r.getMessage(), "induction heads")]


def test_a_watch_that_is_closed_late_leaves_the_resumed_one_its_directory(tmp_path):
    _, first, _ = train(8, out=tmp_path / "run")
    _, resumed, _ = train(8, out=tmp_path / "run", step=8)
    first.close(last=False)
    assert RunDirectory(tmp_path / "run").status()["ended"] is False
    resumed.close(last=False)
    assert RunDirectory(tmp_path / "run").status()["ended"] is True
    assert RunDirectory(tmp_path / "run").curve().steps.tolist() == [0, 4, 8, 12, 16]


def test_one_process_of_several_watches(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    _, watch, _ = train(out=tmp_path / "run")
    watch.loss(1.0)
    assert watch.closed
    assert watch.rows == []
    assert not (tmp_path / "run").exists()


def test_sharded_parameters_are_said_and_the_loss_is_recorded(tmp_path, caplog):
    from torch.distributed.fsdp import fully_shard

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        _, watch, losses = train(out=tmp_path / "run", wrap=fully_shard)
    finally:
        torch.distributed.destroy_process_group()
    assert any(names(record.getMessage(), "FSDP2") for record in caplog.records if record.levelno == logging.WARNING)
    assert watch.curve.measures == []
    assert watch.curve.steps.tolist() == [5, 10]
    assert watch.curve.loss == pytest.approx(np.array(losses)[:10].reshape(2, 5).mean(1), rel=1e-5)


def test_a_model_without_tokens_is_measured_on_its_first_batch(tmp_path, caplog):
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = unstuck.watch(model, optimizer, out=tmp_path / "run", every=2)
    with caplog.at_level(logging.INFO, "unstuck"):
        for _ in range(24):
            optimizer.zero_grad()
            model(torch.randn(6, 5, 8)).square().mean().backward()
            optimizer.step()
    assert watch.watch.probe[0].shape == (4, 5, 8)
    assert watch.curve.measures == ["row_entropy", "distance"]
    assert watch.curve.loss_name is None
    assert any(names(record.getMessage(), "watch.loss") for record in caplog.records)  # how the loss can be given


class Encoder(nn.Module):
    """65 tokens in, 16 classes out, read at the last position, in each place of a list, or as wide as the model is."""

    def __init__(self, read):
        super().__init__()
        self.embed, self.pos = nn.Embedding(65, 80), nn.Parameter(torch.zeros(33, 80))
        self.layer, self.out, self.read = (
            nn.TransformerEncoderLayer(80, 2, 16, batch_first=True),
            nn.Linear(80, 16),
            read,
        )

    def forward(self, x):
        hidden = self.layer(self.embed(x) + self.pos[: x.shape[1]])
        return hidden if self.read == "hidden" else self.out(hidden[:, -1] if self.read == "last" else hidden)


@pytest.mark.parametrize("read", ["last", "each", "hidden"])
def test_a_model_of_other_outputs_than_its_tokens_is_no_language_model(read, tmp_path, caplog):
    torch.manual_seed(0)
    model = Encoder(read)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with caplog.at_level(logging.INFO, "unstuck"):
        watch = unstuck.watch(model, optimizer, out=tmp_path / "run", every=2, trackers=())
        for _ in range(4):
            loss = model(torch.randint(65, (6, 33))).square().mean()
            optimizer.zero_grad()
            loss.backward()
            watch.loss(loss)
            optimizer.step()
    assert watch.curve.measures == ["row_entropy", "distance"]
    why = ("one answer",) if read == "last" else ("logits", 65)
    assert any(names(record.getMessage(), *why, "probe=", "targets=") for record in caplog.records)
    watch.close()


@pytest.mark.parametrize("mask", [None, nn.Transformer.generate_square_subsequent_mask(24)], ids=["both", "causal"])
def test_a_model_that_sees_later_tokens_is_no_language_model(mask, tmp_path, caplog):
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = nn.Embedding(20, 16), nn.Linear(16, 20)
            self.layer = nn.TransformerEncoderLayer(16, 2, 16, batch_first=True)

        def forward(self, tokens):
            length = tokens.shape[1]
            return self.out(self.layer(self.embed(tokens), None if mask is None else mask[:length, :length]))

    model = Masked()
    model.config = {"block_size": 24}
    with caplog.at_level(logging.INFO, "unstuck"):
        watch = unstuck.watch(model, None, out=tmp_path / "run", every=1, trackers=())
        model(torch.randint(20, (2, 24)))
        watch.stepped()
    assert ("induction" in watch.curve.measures) is (mask is not None)
    assert any(names(record.getMessage(), "later") for record in caplog.records) is (mask is None)
    watch.close()


@pytest.mark.parametrize(
    "form", [lambda x: x, lambda x: (None, x), lambda x: {"logits": x}], ids=["own", "tuple", "named"]
)
@pytest.mark.parametrize("padded", [0, 7])
def test_logits_of_every_token_make_a_language_model(form, padded, tmp_path):
    """The tables of tokens may have more rows than the configuration has tokens."""

    class Formed(Tiny):
        def forward(self, tokens):
            return form(super().forward(tokens))

    model = Formed(20 + padded)
    model.config = {"vocab_size": 20}
    watch = unstuck.watch(model, torch.optim.SGD(model.parameters()), out=tmp_path / "run", trackers=())
    assert {"induction"} < set(watch.curve.measures)
    watch.close()


def test_accelerate(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    torch.manual_seed(0)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = Tiny()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    watch = unstuck.watch(model, optimizer, out=tmp_path / "run", every=2)
    for _ in range(8):
        with accelerator.accumulate(model):
            tokens = torch.randint(20, (4, 17))
            _, loss = model(tokens[:, :-1], tokens[:, 1:])
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    assert watch.curve.steps.tolist() == [0, 2, 4]
    assert watch.curve.loss_name == "train_loss"


@pytest.mark.parametrize(
    ("field", "options"),
    [("optimizer", {"optimizer": "adam"}), ("every", {"every": 0}), ("share", {"share": 0.0}), ("step", {"step": -1})],
)
def test_what_cannot_be_used_is_refused_before_training(field, options, tmp_path):
    with refused(field):
        unstuck.watch(Tiny(), **{"out": tmp_path / "run", **options})
    with refused("model"):
        unstuck.watch("gpt2")
    model = Tiny()
    with refused("model", allowed=["optimizer"]):  # the two are swapped
        unstuck.watch(torch.optim.SGD(model.parameters()), model)


def by_step(model):
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    torch.optim.AdamW(model.parameters(), lr=1e-3).step()


def by_data(model):
    model.out.weight.data[0, 0] += 1.0  # which PyTorch does not count as a change


def by_buffer(model):
    model.register_buffer("more", torch.ones(1))


def by_attribute(model):
    model.checkpointing = True


CHANGES = [None, by_step, by_data, by_buffer, by_attribute]


@pytest.mark.parametrize("change", CHANGES, ids=[change.__name__ if change else "none" for change in CHANGES])
def test_the_first_row_is_that_of_the_trial_unless_the_model_has_changed(change, monkeypatch):
    torch.manual_seed(0)
    model, measured = Tiny(), []
    plain = unstuck.Watch.measure
    monkeypatch.setattr(unstuck.Watch, "measure", lambda self: (measured.append(1), plain(self))[1])
    watch = unstuck.Watch(model, vocabulary=20, length=16, every=1)
    model.eval()
    if change is not None:
        change(model)
    row = watch(1, loss=1.0)
    assert len(measured) == (1 if change is None else 2)
    expected = plain(watch)
    assert {name: row[name] for name in expected} == expected
    assert (row["step"], row["loss"]) == (1.0, 1.0)
    watch(2)
    assert len(measured) == (2 if change is None else 3)


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def accumulating(model, passes):
    for _ in range(passes):
        tokens = torch.randint(20, (2, 17))
        model(tokens[:, :-1], tokens[:, 1:])[1].backward()


def test_a_watch_that_counts_no_steps_says_once_what_to_pass(tmp_path, caplog):
    """Also one that nobody keeps: `unstuck.watch(model)`."""
    model = Tiny()
    unstuck.watch(model, out=tmp_path / "run", trackers=())
    accumulating(model, 19)
    with torch.no_grad():
        model(torch.zeros(2, 4, dtype=torch.long))
    assert not warnings_of(caplog)
    accumulating(model, 30)
    assert [names(message, "optimizer", "stepped") for message in warnings_of(caplog)] == [True]


def test_many_batches_may_make_a_step_of_an_optimiser_or_a_trainer(tmp_path, caplog):
    model = Tiny()
    watch = unstuck.watch(model, torch.optim.SGD(model.parameters()), out=tmp_path / "a", trackers=())
    accumulating(model, 40)
    other = unstuck.watch(model, out=tmp_path / "b", trackers=())
    other.stepped()
    accumulating(model, 40)
    assert not warnings_of(caplog)
    watch.close()
    other.close()


def test_an_optimiser_of_another_model_is_named_at_once(tmp_path, caplog):
    model, other = Tiny(), Tiny()
    watch = unstuck.watch(model, torch.optim.SGD(other.parameters()), out=tmp_path / "run", trackers=())
    assert [names(message, "optimizer", "model") for message in warnings_of(caplog)] == [True]
    accumulating(model, 30)
    assert len(warnings_of(caplog)) == 1
    watch.close()
    caplog.clear()
    watch = unstuck.watch(model, torch.optim.SGD([model.out.weight, *other.parameters()]), out=tmp_path / "part")
    assert not warnings_of(caplog)
    watch.close()


# -- when it measures


@pytest.mark.parametrize(("step_time", "look_time"), [(0.001, 0.005), (0.4, 0.28), (0.05, 2.0), (3.0, 0.1)])
def test_measurements_take_at_most_their_share(step_time, look_time):
    now, looks = [0.0], []
    pace = Pace(0.02, clock=lambda: now[0])
    pace.expect("look", look_time)
    pace.begin(0)
    watched = 0.0
    for step in range(1, 20001):
        now[0] += step_time
        if pace.is_due(step):
            now[0] += look_time
            pace.took("look", look_time)
            pace.last = step
            looks.append(step)
            watched += look_time
            trained = step * step_time
            assert watched <= 0.02 * max(trained, AHEAD) + 1e-9
    trained = 20000 * step_time
    gaps = np.diff([0, *looks])
    assert gaps.min() >= 10
    assert (gaps >= np.array(looks) // 100).all()
    full = 0.02 * trained / look_time  # looks that the share pays for
    assert len(looks) >= min(0.8 * full, 100)
    assert not [s for s in range(400, 20000) if not any(s / 3 <= x <= s for x in looks)] or full < 20


def test_a_pause_is_named_once_when_the_time_in_advance_is_spent():
    now, pauses = [0.0], []
    pace = Pace(0.01, clock=lambda: now[0])
    pace.expect("look", 0.03)
    pace.begin(0)
    looks = []
    for step in range(1, 20001):
        now[0] += 0.01
        if pace.is_due(step):
            now[0] += 0.03
            pace.took("look", 0.03)
            pace.last = step
            looks.append(step)
        elif (pause := pace.pause(step)) is not None:
            pauses.append((step, pause))
    step, pause = pauses[0]
    following = next(look for look in looks if look > step)
    assert pause.step == pytest.approx(following, rel=0.05)
    assert pause.seconds == pytest.approx(0.01 * following, rel=0.05)
    assert following >= 2 * step
    assert all(look > AHEAD / 0.01 or look < step for look in looks)  # until then there is no time left
    assert not [s for s, _ in pauses if s > AHEAD / 0.01]
    fixed = Pace(0.01, every=50, clock=lambda: now[0])
    fixed.begin(0)
    assert fixed.pause(40) is None


@pytest.mark.parametrize(("step_time", "look_time", "test_time"), [(0.025, 0.03, 0.008), (1.0, 0.5, 0.02)])
def test_tests_of_the_loss_go_on_between_measurements_within_the_share(step_time, look_time, test_time):
    now, tests = [0.0], []
    pace = Pace(0.01, clock=lambda: now[0])
    pace.expect("look", look_time)
    pace.begin(0)
    for step in range(1, 8001):
        now[0] += step_time
        if pace.is_due(step):
            now[0] += look_time
            pace.took("look", look_time)
            pace.last = step
        elif pace.allows_loss:
            now[0] += test_time
            pace.took("loss", test_time)
            tests.append(step * step_time)
        assert pace.spent <= 0.01 * max(step * step_time, AHEAD) + test_time
    between = test_time / (0.01 * LOSS_PART)
    assert np.diff([0.0, *tests]).max() <= 2 * between + step_time
    assert not Pace(0.01, every=10).allows_loss


def test_a_short_training_hears_once_how_it_gets_more_rows(tmp_path, caplog, monkeypatch):
    model = Tiny()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = unstuck.watch(model, optimizer, out=tmp_path / "run", share=1e-4, trackers=())
    with caplog.at_level(logging.INFO, "unstuck"):
        for _ in range(60):
            tokens = torch.randint(20, (2, 17))
            model(tokens[:, :-1], tokens[:, 1:])[1].backward()
            optimizer.step()
    assert len([record for record in caplog.records if names(record.getMessage(), "every=")]) == 1
    assert watch.curve.steps[-1] == 60  # with a loss
    assert watch.forecast().notes.unformed == np.max(watch.curve.complete("induction").steps) < 60
    watch.close()
    assert watch.curve.complete("induction").steps[-1] == watch.forecast().notes.unformed == 60


# -- what it says


def test_the_line_gives_step_plateau_exit_interval_head_and_clock():
    steps = np.arange(0, 901, 10.0)
    attention = 0.02 + 0.2 * (steps / 1500) ** 3
    rows = [
        {"step": s, "train_loss": 1.0 + 0.5 * math.exp(-s / 20) + 0.002 * (-1) ** i, "attn_2_3": a, "attn_0_1": 0.02}
        for i, (s, a) in enumerate(zip(steps, attention, strict=True))
    ]
    curve = Curve.from_rows(rows)
    said = Forecaster().predict(curve)
    assert said.outcome is Outcome.EMERGES
    line = Line.of(curve, said, seconds_per_step=1.0)
    low, high = said.interval()
    since = line.loss.notes.loss.plateau_since
    assert names(str(line), "900", f"{since:,.0f}", f"{said.step:,.0f}", f"{low:,.0f}", "2.3")
    assert f"{high:,.0f}" in str(line)
    assert line.grade in str(line)
    assert line.grade in ("high", "medium", "low")
    assert not Line.of(curve, said, 2.0).is_news_after(line)
    earlier = curve.truncate(450)
    before = Line.of(earlier, Forecaster().predict(earlier))
    assert before.forecast.step < 0.8 * said.step
    assert line.is_news_after(before)


def leaving(fell=36):
    """A loss that leaves its level, and attention that has risen before; the two rules of exits differ by some rows."""
    steps = np.arange(0, 600, 10.0)
    losses = np.where(steps < 10 * fell, 1.0, np.maximum(0.15, 1.0 - 0.06 * (steps / 10 - fell)))
    noise = 0.004 * (-1.0) ** np.arange(len(steps))
    rows = [
        {"step": s, "train_loss": x, "attn_0_0": a}
        for s, x, a in zip(steps, losses + noise, np.minimum(0.02 + 0.9 * (steps / 590) ** 3, 1), strict=True)
    ]
    return Curve.from_rows(rows)


def test_one_exit_has_one_date():
    curve = leaving()
    said = Forecaster().predict(curve)
    line = Line.of(curve, said)
    assert (said.outcome, line.loss.outcome) == (Outcome.EMERGED, Outcome.LEFT)
    assert line.loss.step != said.step
    assert str(line).count(" at ") == 1
    assert names(str(line), f"{said.step:,.0f}")
    assert not names(str(line), f"{line.loss.step:,.0f}")
    earlier = curve.truncate(400)  # the loss has begun to fall
    line = Line.of(earlier, Forecaster().predict(earlier))
    assert (line.forecast.outcome, line.loss.outcome) == (Outcome.EMERGES, Outcome.LEFT)
    assert str(line).count("exit") == 1
    assert "left" not in str(line)
    alone = str(Line(line.loss, line.loss))  # of a curve without targets
    assert names(alone, f"{line.loss.step:,.0f}")
    assert "left" not in alone


def fed(losses, out, **options):
    """A watch that gets losses, a second a step by its clock, and has no time for measurements and reports."""
    now = [0.0]
    watch = unstuck.watch(Tiny(), None, out=out, trackers=(), **options)
    watch.pace.clock = lambda: now[0]
    for kind in ("look", "report"):
        watch.pace.expect(kind, math.inf)
    for loss in losses:
        now[0] += 1.0
        watch.loss(loss)
        watch.stepped()
    return watch


def lines_of(caplog):
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith("step ")]


def test_a_change_of_the_loss_is_said_without_a_measurement(tmp_path, caplog):
    """Within some rows, once each, and not again by the next report."""
    steps = np.arange(1, 401)
    losses = np.where(steps < 200, 1.0, np.maximum(0.05, 0.97 ** (steps - 200.0))) + 0.004 * (-1.0) ** (steps // 5)
    with caplog.at_level(logging.INFO, "unstuck"):
        watch = fed(losses[:230], tmp_path / "run")
        lines = lines_of(caplog)
        assert watch._reports._line.loss.outcome is Outcome.LEFT
        assert 200 <= watch._reports._line.loss.step < 220
        assert len(lines) == len(set(lines)) <= 3
        caplog.clear()
        watch.report()
        assert not lines_of(caplog)
    assert np.isfinite(watch.curve.best("induction")).sum() == 1
    watch.close(last=False)


@pytest.mark.parametrize(("steps", "every"), [(40, 10), (45, 10), (45, None)])
def test_a_training_ends_with_one_line_of_its_last_row(tmp_path, caplog, steps, every):
    """Also where the last report, at its last row, had no news."""
    with caplog.at_level(logging.INFO, "unstuck"):
        watch = fed(1.0 + 0.004 * (-1.0) ** np.arange(steps), tmp_path / "run", every=every)
        caplog.clear()
        if steps == 40:
            watch.report()
        watch.close(last=False)  # as at the end of the process
        watch.close(last=False)
    lines = lines_of(caplog)
    assert len(lines) == 1
    assert lines[0].startswith(f"step {watch.rows[-1]['step']:,.0f} ")


def test_a_training_of_no_step_has_no_last_line(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "unstuck"):
        fed([], tmp_path / "run").close()
    assert not lines_of(caplog)


def test_a_grade_is_that_of_the_probability_and_low_for_a_run_unlike_those_of_the_fit():
    curve = Curve.from_rows({"step": s, "train_loss": 1.0, "attn_0_0": 0.02} for s in range(0, 100, 10))
    near = replace(Forecaster().predict(curve), outcome=Outcome.EMERGES, step=150.0, notes=Notes())
    for probability, grade in ((0.95, "high"), (0.6, "medium"), (0.2, "low")):
        assert Line.of(curve, replace(near, probability=probability)).grade == grade
    assert Line.of(curve, replace(near, probability=0.95, notes=Notes(unlike=True))).grade == "low"


def trained(steps, out, fails_at=None):
    """A training within a function, with another hook after that of the watch; nothing but the optimiser holds the
    watch when it returns."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(12, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = unstuck.watch(model, optimizer, out=out, every=2, trackers=())
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    for step in range(steps):
        loss = model(torch.randint(12, (2, 6))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        watch.loss(torch.zeros(3) if step == fails_at else loss)
        optimizer.step()
    return len(calls)


def test_a_watch_that_fails_does_not_end_a_training_with_other_hooks(tmp_path):
    assert trained(12, tmp_path / "a", fails_at=3) == 12


def test_rows_since_the_last_report_are_saved_when_a_training_function_returns(tmp_path):
    import gc

    trained(13, tmp_path / "a")
    gc.collect()
    close_freed()  # as the next watch does, or the end of the process
    assert RunDirectory(tmp_path / "a").curve().steps[-1] == 12


def test_a_training_that_turns_to_nan_has_diverged(tmp_path, caplog):
    """Loss and weights: the attention of later rows is NaN too."""
    torch.manual_seed(0)
    model = Tiny()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = unstuck.watch(model, optimizer, out=tmp_path / "run", every=5, trackers=())
    with caplog.at_level(logging.INFO, "unstuck"):
        for step in range(60):
            tokens = torch.randint(20, (2, 17))
            loss = model(tokens[:, :-1], tokens[:, 1:])[1] * (math.nan if step == 30 else 1.0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert watch.forecast().outcome is Outcome.DIVERGED
    assert watch._reports._line.loss.outcome is Outcome.DIVERGED
    assert any(names(record.getMessage(), "diverged") for record in caplog.records)
    watch.close()
    assert Forecaster().predict(RunDirectory(watch.out).curve()).outcome is Outcome.DIVERGED


def test_a_watch_without_rows_has_no_forecast_yet():

    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    assert unstuck.Watch(layer, torch.zeros(2, 5, 8)).forecast().outcome is Outcome.TOO_EARLY
