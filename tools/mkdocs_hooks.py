"""Let the documentation show the committed pictures. In the repository a page has them at ../results/NAME.png; the site
gets copies at results/NAME.png."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files


def on_files(files: Files, config: Any) -> Files:
    root = Path(config.config_file_path).parent
    for picture in sorted((root / "results").glob("*.png")):
        files.append(File.generated(config, f"results/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return markdown.replace("](../results/", "](results/")
