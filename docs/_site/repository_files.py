"""A hook of mkdocs: files of the repository that pages link to come into the site.

Pages are written with links that work in a checkout. What lies outside of docs/, such as model_cards/, has its own path
in the site; Markdown becomes a page, and what that links to comes along, too.
"""

import re
from pathlib import Path
from posixpath import join, normpath, relpath

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
# the target of a link or figure of Markdown, up to its anchor or title
TARGET = re.compile(r"(?<=\]\()(?!\w+:|#|/)([^)\s#]+)")


def site_path(page: str, target: str) -> str | None:
    """Path in the site of what a file of the repository links to; None if that is no file of the repository."""
    path = normpath(join(page, "..", target))
    if path.startswith("..") or not (ROOT / path).exists():
        return None
    if (ROOT / path).is_dir():
        path = join(path, "README.md")
    return path.removeprefix("docs/") if (ROOT / path).is_file() else None


def repository_path(file: File) -> str:
    """Path in the repository of a file of the site."""
    return Path(file.abs_src_path).relative_to(ROOT).as_posix()


def on_files(files: Files, config) -> Files:
    """Add what pages link to outside of docs/, and what that links to."""
    waiting = [file for file in files.documentation_pages() if file.abs_src_path]
    while waiting:
        file = waiting.pop()
        for target in TARGET.findall(file.content_string):
            path = site_path(repository_path(file), target)
            if path and path not in files.src_uris:
                found = File(path, str(ROOT), config.site_dir, config.use_directory_urls)
                files.append(found)
                if found.is_documentation_page():
                    waiting.append(found)
    return files


def on_page_markdown(markdown: str, page: Page, config, files: Files) -> str:
    """Links as the site needs them."""
    if not page.file.abs_src_path:
        return markdown
    source = repository_path(page.file)

    def rewritten(found: re.Match) -> str:
        path = site_path(source, found.group())
        return relpath(path, join(page.file.src_uri, "..")) if path else found.group()

    return TARGET.sub(rewritten, markdown)
