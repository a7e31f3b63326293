"""What the documentation says is so: links lead somewhere, options exist, and the guide's `console` blocks run and print what is shown."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDE = sorted((ROOT / "docs/guide").glob("*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *GUIDE,
         *sorted(p for p in ROOT.glob("*/README.md") if not p.parent.name.startswith(("build", ".")))]


def anchors(text):
    """GitHub's names of a page's headings."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", text, re.M)}


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        to = page.parent / path if path else page
        assert to.exists(), f"{target} is not there"
        if anchor:
            assert anchor in anchors(to.read_text()), f"{target}: no such heading"


def test_the_site_holds_every_page(tmp_path):
    """mkdocs takes them all without a warning, each is in the menu, and what a page of the site links to is there."""
    if not shutil.which("mkdocs"):
        pytest.skip("mkdocs is not installed")
    done = subprocess.run(["mkdocs", "build", "--strict", "--quiet", "-f", str(ROOT / "packaging/site/mkdocs.yml"), "-d", str(tmp_path)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    menu = (ROOT / "packaging/site/mkdocs.yml").read_text()
    for page in [*(ROOT / "docs").glob("*.md"), *GUIDE]:
        assert f": {page.relative_to(ROOT / 'docs')}\n" in menu, page
    for page in tmp_path.rglob("*.html"):
        if page.name == "404.html":
            continue  # its links start at the site's root
        for target in re.findall(r'(?:href|src)="([^"#?]+)', page.read_text()):
            if "://" not in target and not target.startswith("mailto:"):
                assert (page.parent / target).exists(), f"{page.relative_to(tmp_path)}: {target} is not there"


@pytest.fixture(scope="module")
def options(optc):
    """The options of each verb, by optc's own help."""
    known = {}

    def of(verb):
        if verb not in known:
            done = subprocess.run([optc, verb, "--help"], capture_output=True, text=True)
            known[verb] = set(re.findall(r"--[a-z0-9][a-z0-9-]*", done.stdout)) if done.returncode == 0 else None
        return known[verb]

    return of


def test_commands_and_options_exist(options):
    """Every `optc ...` of code in the pages."""
    top = options("compile")
    seen = 0
    for page in PAGES:
        text = page.read_text()
        code = re.findall(r"`([^`\n]*)`", re.sub(r"```.*?```", "", text, flags=re.S)) + re.findall(r"^(?: {4}|\$ )(.*)$", text, re.M)
        for line in code:
            found = re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\./dev |\./build/bin/|build/bin/)?optc ([a-z]+\b(?!\.)|\S)?(.*)", line)
            if not found:
                continue
            verb = found[1] if found[1] and options(found[1]) is not None else "compile"
            known = options(verb) | ({"--version", "--help"} if verb == "compile" else set())
            for option in re.findall(r"(?<![\w-])(--[a-z0-9][a-z0-9-]*)", line):
                assert option in known or option in top and verb == "compile", f"{page.relative_to(ROOT)}: {line}: {verb} has no {option}"
                seen += 1
    assert seen > 40


def blocks(page):
    return re.findall(r"^```console\n(.*?)^```", page.read_text(), re.M | re.S)


@pytest.mark.parametrize("page", [p for p in GUIDE if blocks(p)], ids=lambda p: p.stem)
def test_the_guide_runs(page, optc, tmp_path):
    for model in (ROOT / "docs/guide").glob("*.onnxtxt"):
        shutil.copy(model, tmp_path)
    env = {**os.environ, "PATH": f"{pathlib.Path(optc).parent}:{os.environ['PATH']}", "OPTC_PYTHON": sys.executable}
    for block in blocks(page):
        for command in re.split(r"^\$ ", block, flags=re.M)[1:]:
            line, _, shown = command.partition("\n")
            line, _, code = line.partition("# exit ")
            done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            printed = done.stdout.rstrip()
            assert done.returncode == int(code or 0), f"$ {line}\n{printed}"
            # A line of three dots is any number of lines; three dots in a line, and spaces, any of theirs; a step may have taken a
            # time that is worth saying.
            pattern = ""
            for text in shown.rstrip().splitlines():
                words = re.sub(r"(\\ )+", r" +", re.escape(text.rstrip()).replace(re.escape("..."), ".*"))
                pattern += r"(?:.*\n)*?" if text == "..." else words + r"(?: +[\d.]+ s)? *\n"
            if shown.strip():
                assert re.search(r"(?:^|\n)" + pattern, "\n" + printed + "\n"), f"$ {line}\n{printed}\n--- is not what is shown:\n{shown}"


def test_the_page_of_rewrites_names_every_rule(optc):
    listed = subprocess.run([optc, "explain"], capture_output=True, text=True, check=True).stdout
    rules = {line.split()[0]: line for line in listed.splitlines() if re.match(r"[a-z]+\.[a-z_.0-9]+ ", line)}
    named = set(re.findall(r"`([a-z]+\.[a-z_]+)`", (ROOT / "docs/rewrites.md").read_text()))
    assert named <= set(rules), named - set(rules)
    own = {name for name, line in rules.items() if not re.match(r"\S+ +lowering ", line)}
    assert own <= named, own - named
