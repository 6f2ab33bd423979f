"""Checks of errors and warnings: their type, and the fields, values and names they give; their wording may change."""

import re
from contextlib import contextmanager
from unittest.mock import ANY

import pytest

from unstuck.cli import main
from unstuck.errors import BadInput, InvalidCombination


def names(text, *facts):
    """Whether `text` gives each of the fields, values or names, as whole words."""
    return all(re.search(rf"(?<![\w.-]){re.escape(str(fact))}(?!\w|\.\d)", text) for fact in facts)


@contextmanager
def refused(field, value=ANY, *, allowed=(), nearest=None):
    """A BadInput for this field and value, with these names among what is allowed and this suggestion at the end."""
    with pytest.raises(BadInput) as caught:
        yield caught
    error = caught.value
    assert not isinstance(error, InvalidCombination), error
    assert (error.field, error.value) == (field, value)
    assert names(error.allowed, *allowed), error
    if nearest is not None:
        assert error.allowed.endswith(f"{nearest!r}?"), error


@contextmanager
def invalid(*settings):
    """An InvalidCombination that names the settings, or the things, that do not go together."""
    with pytest.raises(InvalidCombination) as caught:
        yield caught
    assert names(str(caught.value), *settings), caught.value


@contextmanager
def warned(category, *facts):
    """One warning of this category or more; one of them gives all facts."""
    with pytest.warns(category) as caught:
        yield caught
    messages = [str(w.message) for w in caught if issubclass(w.category, category)]
    assert any(names(message, *facts) for message in messages), messages


def sentence(code, out, err, *facts, expected=2):
    """The one line on stderr of a command that was refused, which gives all facts."""
    assert (code, out, err.count("\n")) == (expected, "", 1), (out, err)
    assert "Traceback" not in err
    assert names(err, *facts), err
    return err


def refused_command(capsys, *words, says=(), expected=2):
    """Run the command in this process; it ends with this exit code and one sentence, which is returned."""
    capsys.readouterr()
    code = main([str(word) for word in words])
    return sentence(code, *capsys.readouterr(), *says, expected=expected)
