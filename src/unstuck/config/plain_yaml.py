"""Read YAML that is plain: no aliases, no surprises, and no more than a specification needs."""

import re
from typing import Any

import yaml

LARGEST = 200_000  # characters of a text; a specification has some hundreds
DEEPEST = 20  # levels of lists and mappings; a specification has three
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where it is there

#: Numbers that YAML 1.1 reads to another base: 010 as 8, and 8:16 as 8 * 60 + 16.
_OTHER_BASE = re.compile(
    r"[-+]?(0[0-7_]+ | [1-9][0-9_]*(:[0-5]?[0-9])+ | [0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*)", re.VERBOSE
)


class NotPlain(ValueError):
    """YAML that is refused: what is `allowed`, and the `value` in its place, unless that is the whole text."""

    def __init__(self, allowed: str, value: str | None = None) -> None:
        self.allowed, self.value = allowed, value
        super().__init__(f"{'the text' if value is None else value} must be {allowed}")


def plain_yaml(text: str) -> Any:
    """The texts, numbers, lists and mappings that `text` stands for.

    An alias repeats what its anchor names, so that a few lines may stand for gigabytes: they are refused before
    anything is made of them, and so are numbers that would silently become others.

    Examples:
        >>> plain_yaml("{T: 32, rates: [0.1, 1e-3]}")
        {'T': 32, 'rates': [0.1, '1e-3']}
        >>> plain_yaml("T: 010")
        Traceback (most recent call last):
        unstuck.config.plain_yaml.NotPlain: 010 must be a number without a leading zero or colons, or quoted text
    """
    if len(text) > LARGEST:
        raise NotPlain(f"of at most {LARGEST} characters")
    try:
        _check(text)
        return yaml.load(text, Loader=_LOADER)
    except NotPlain:
        raise
    except (yaml.YAMLError, ValueError) as e:  # also for a date on the 40th, or a number of more than 4,300 digits
        raise NotPlain(f"readable YAML ({' '.join(str(e).split())[:150]})") from e


def _check(text: str) -> None:
    """Refuse what is not plain, by the events of the parser: nothing is made of the text yet."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.NodeEvent):
            _check_node(event)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise NotPlain(f"nested at most {DEEPEST} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _check_node(event: Any) -> None:
    if event.anchor is not None:
        sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
        raise NotPlain("written out, since aliases are not read", f"{sign}{event.anchor}")
    if event.tag is not None:
        raise NotPlain("without a tag", event.tag)
    if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and _OTHER_BASE.fullmatch(event.value):
        raise NotPlain("a number without a leading zero or colons, or quoted text", event.value)
