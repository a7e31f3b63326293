"""Links to files that the site does not hold (sources, READMEs of folders) are written as their text."""

import pathlib
import re

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown, page, **_):
    folder = (DOCS / page.file.src_path).parent

    def link(match):
        text, target, _ = match.groups()
        if "://" in target or DOCS in (folder / target).resolve().parents:
            return match.group()
        return text

    return LINK.sub(link, markdown)
