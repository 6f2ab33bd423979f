"""Let the documentation show the committed pictures. In the repository a page of docs/ has them at ../results/NAME.png,
and a page in a folder at ../../results/NAME.png; the site gets copies at results/NAME.png. Pictures load when they are
scrolled to."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ONE_UP = re.compile(r"\]\(\.\./((?:\.\./)*results/[^)]*\.png\))")


def on_files(files: Files, config: Any) -> Files:
    root = Path(config.config_file_path).parent
    for picture in sorted((root / "results").glob("*.png")):
        files.append(File.generated(config, f"results/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return ONE_UP.sub(r"](\1", markdown)


def on_page_content(html: str, **_: Any) -> str:
    return html.replace("<img ", '<img loading="lazy" ')
