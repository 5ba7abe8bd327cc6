"""One page per folder of results that links all of it: ``index.html``."""

import html
import json
from pathlib import Path

import pandas as pd
from PIL import Image

from fedlib.results.record import strangers
from fedlib.tools.files import atomic

STYLE = (
    "body{font-family:sans-serif;max-width:70em;margin:2em auto;padding:0 1em}img{max-width:100%}td,th{padding:2px 10px;text-align:left}"
)


def write_index(run: Path) -> None:
    """``index.html`` of one run, which links everything in its folder."""
    _write(run, f"{run.name}, {_facts(run)}", _run(run))


def write_indices(folder: Path) -> None:
    """``index.html`` in every folder below ``folder`` that holds a run, and in ``folder`` itself one that leads to them."""
    runs = sorted(path.parent for path in folder.glob("*/run.json"))
    for run in runs:
        write_index(run)
    rows = [[_link(f"{run.name}/index.html", run.name), html.escape(_facts(run)), _verdicts(run)] for run in runs]
    others = {"claims.csv": "the claims of all papers", "quickstart/notebook.html": "the quickstart"}
    links = _list([_link(name, text) for name, text in others.items() if (folder / name).exists()])
    _write(folder, f"Results of {folder.name}", _table(["run", "how it was made", "claims"], rows) + links)


def _run(folder: Path) -> str:
    """What one run left: its notebook, its tables, its pictures with their captions, its claims and how it was made; apart from these what
    another run left there."""
    others = strangers(folder)
    files = {
        "notebook.html": "the executed notebook",
        "claims.csv": "claims",
        "run.json": "how it was made",
        "federations.json": "the trainings behind it",
    }
    links = [_link(name, text) for name, text in files.items() if (folder / name).exists() and name not in others]
    pictures, tables, numbers = (
        sorted((path for path in folder.glob(f"[!.]*.{kind}") if path.name not in others), key=_order) for kind in ("png", "tex", "csv")
    )
    drawn = {path.stem for path in (*pictures, *tables)} | {"claims"}
    numbers = [path for path in numbers if path.stem not in drawn]
    lacking = json.loads((folder / "run.json").read_text(encoding="utf-8")).get("not_made", {})
    parts = ["<h2>Run</h2>", _list(links)]
    if lacking:
        parts += ["<h2>Asked for and not made</h2>", _list([html.escape(f"{name}: {reason}") for name, reason in lacking.items()])]
    if tables:
        parts += [
            "<h2>Tables</h2>",
            _list([f"{path.stem}: {_link(f'{path.stem}.csv', 'CSV')}, {_link(path.name, 'LaTeX')}" for path in tables]),
        ]
    if numbers:
        parts += ["<h2>Further numbers</h2>", _list([_link(path.name, path.stem) for path in numbers])]
    if pictures:
        parts.append("<h2>Figures</h2>")
    for path in pictures:
        with Image.open(path) as picture:
            caption = html.escape(picture.info.get("Description", "")).replace("\n", "<br>")
        parts.append(f'<p><img src="{path.name}" alt="{path.stem}"><br>{caption} ({_link(f"{path.stem}.csv", "the numbers")})</p>')
    if others:
        parts += ["<h2>Of another run, or made beside this one</h2>", _list([_link(name, name) for name in others])]
    return "\n".join(parts)


def _order(path: Path) -> tuple[str, int, str]:
    """T2 before T10."""
    number = "".join(c for c in path.stem if c.isdigit())
    return "".join(c for c in path.stem.partition("_")[0] if c.isupper()) or "~", int(number or 0), path.stem


def _facts(folder: Path) -> str:
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    seeds = ", ".join(map(str, run["seeds"]))
    return f"{run.get('dataset', '')}, profile {run['profile']}, seeds {seeds}, {run['date'][:10]}"


def _verdicts(folder: Path) -> str:
    if not (folder / "claims.csv").exists():
        return "–"
    counts = pd.read_csv(folder / "claims.csv")["ours"].value_counts()
    return html.escape(", ".join(f"{n} {state}" for state, n in counts.items()))


def _write(folder: Path, title: str, body: str) -> None:
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{STYLE}</style>'
    with atomic(folder / "index.html") as path:
        path.write_text(f"<!doctype html><html><head>{head}</head><body><h1>{html.escape(title)}</h1>\n{body}\n</body></html>\n", "utf-8")


def _link(target: str, text: str) -> str:
    return f'<a href="{html.escape(target)}">{html.escape(text)}</a>'


def _list(items: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>"


def _table(names: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in names)
    return f"<table><tr>{head}</tr>" + "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows) + "</table>"
