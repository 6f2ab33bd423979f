"""Let the documentation show the committed pictures and mathematics.

Pictures: in the repository a page of docs/ has them at ../results/NAME.png, and a page in a folder at
../../results/NAME.png; the site gets copies at results/NAME.png. They load when they are scrolled to.

Links to examples/, which the site does not have, become words.

Mathematics: $...$ and $$...$$ become MathML, which browsers draw without a script.

The name of the site says which version it describes.
"""

import html as entities
import re
import tomllib
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

#: What pymdownx.arithmatex writes: TeX between \( and \), or between \[ and \].
TEX = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
#: A link to a file that the site does not have, which becomes its words.
OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+examples/[^)]*\)")
ONE_UP = re.compile(r"\]\(\.\./((?:\.\./)*results/[^)]*\.png\))")


def on_config(config: Any) -> Any:
    root = Path(config.config_file_path).parent
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    config.site_name = f"{config.site_name} {version}"
    return config


def on_files(files: Files, config: Any) -> Files:
    root = Path(config.config_file_path).parent
    for picture in sorted((root / "results").glob("*.png")):
        files.append(File.generated(config, f"results/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return OUTSIDE.sub(r"\1", ONE_UP.sub(r"](\1", markdown))


def on_page_content(html: str, **_: Any) -> str:
    return TEX.sub(as_mathml, html.replace("<img ", '<img loading="lazy" '))


def as_mathml(match: re.Match[str]) -> str:
    tag, tex = match.groups()
    display, style = ("block", ' style="overflow-x: auto"') if tag == "div" else ("inline", "")
    return f'<{tag} class="math"{style}>{convert(entities.unescape(tex).strip(), display=display)}</{tag}>'
