"""Attention maps over training as bytes for a page, with the tokens that they are about."""

import base64
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from unstuck.files import is_own_file
from unstuck.store.reading import read_text
from unstuck.store.store import CACHE, RunDirectory
from unstuck.view.heads import head_name

BYTES = 256  # the vocabulary in which a token is a byte
_PRINTABLE = {*range(33, 127), *range(161, 173), *range(174, 256)}  # bytes that a byte-level BPE writes as they are
_SHIFTED = {256 + k: b for k, b in enumerate(b for b in range(256) if b not in _PRINTABLE)}
_SIGNS = {"\n": "⏎", "\t": "⇥", " ": "␣"}  # for tokens that would not be seen


def attention_of(directories: list[RunDirectory], room: float = math.inf) -> tuple[list[dict[str, Any]], int]:
    """The maps of runs that kept them, as bytes from 0 to 255, and the number of runs whose maps did not fit."""
    out, spent, large = [], 0, 0
    for directory in directories:
        maps = directory.maps()
        if maps is None or maps.empty:
            continue
        size = int(max(maps["row"].max(), maps["column"].max())) + 1
        steps = sorted(int(s) for s in maps["step"].unique())
        heads = sorted({(int(a), int(b)) for a, b in zip(maps["layer"], maps["head"], strict=True)})
        needs = len(steps) * len(heads) * size * size
        if spent + needs > room:
            large += 1
            continue
        spent += needs
        values = np.zeros((len(steps), len(heads), size, size), dtype=np.uint8)
        at = {step: i for i, step in enumerate(steps)}
        place = {head: i for i, head in enumerate(heads)}
        which = [place[int(a), int(b)] for a, b in zip(maps["layer"], maps["head"], strict=True)]
        weight = np.clip(maps["weight"].to_numpy(dtype=float), 0, 1)
        values[maps["step"].map(at), which, maps["row"], maps["column"]] = np.round(255 * weight)
        found = {
            "run_id": directory.path.name,
            "steps": steps,
            "heads": [list(head) for head in heads],
            "names": [head_name(*head) for head in heads],
            "size": size,
            "data": base64.b64encode(values.tobytes()).decode(),
        }
        out.append(found | _tokens(maps, size, directory))
    return out, large


def _tokens(maps: pd.DataFrame, size: int, directory: RunDirectory) -> dict[str, Any]:
    """The token at each position, and whether the target depends on it."""
    first = maps.drop_duplicates("column").set_index("column").reindex(range(size))
    relevant = [bool(x == 1) for x in first["relevant"]] if "relevant" in first else [False] * size
    numbers = first["token"].tolist() if "token" in first else list(range(size))
    known = [None if x != x else int(x) for x in numbers]
    if known == list(range(size)):  # vectors, or a mean over sequences: a token is called by its position
        return {"tokens": [f"x{i + 1}" for i in range(size)], "relevant": relevant}
    texts = _texts(directory)
    tokens = ["" if i is None else texts.get(i, str(i)) for i in known]
    return {"tokens": tokens, "relevant": relevant}


def _texts(directory: RunDirectory) -> Mapping[int, str]:
    """Of a language model what each index stands for, if the store has its tokeniser; else nothing."""
    task: Mapping[str, Any] = (directory.spec() or {}).get("task") or {}
    vocabulary = task.get("vocabulary")
    if task.get("name") != "text" or not isinstance(vocabulary, int):
        return {}
    if vocabulary == BYTES:
        return {i: _visible(chr(i)) if i < 128 else f"\\x{i:02x}" for i in range(BYTES)}
    return _vocabulary(directory.path.parent / CACHE, str(task.get("corpus")), vocabulary)


def _vocabulary(cache: Path, corpus: str, vocabulary: int) -> Mapping[int, str]:
    """From the one tokeniser of that corpus and size in a store's cache; several corpora of files may have one size."""
    name = re.escape(corpus) if re.fullmatch(r"\w+", corpus) else ""
    pattern = re.compile(rf"{name}.*-{vocabulary}\.tokenizer\.json")
    files = (
        [p for p in cache.iterdir() if pattern.fullmatch(p.name)] if cache.is_dir() and not cache.is_symlink() else []
    )
    if len(files) != 1 or not is_own_file(files[0]):
        return {}
    try:
        entries = json.loads(read_text(files[0]))["model"]["vocab"]
        return {int(i): _visible(_decoded(str(token))) for token, i in entries.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _decoded(token: str) -> str:
    """A token of a byte-level BPE as text; it writes bytes that cannot be printed as characters from 256 on."""
    codes = [_SHIFTED.get(ord(c), ord(c)) for c in token]
    return bytes(code for code in codes if code < 256).decode(errors="replace")


def _visible(text: str) -> str:
    """A blank before a word stays; what cannot be seen gets a sign."""
    if text.strip():
        return text.replace("\n", _SIGNS["\n"]).strip("\r") if text.isprintable() or "\n" in text else repr(text)[1:-1]
    return "".join(_SIGNS.get(c, repr(c)[1:-1]) for c in text)
