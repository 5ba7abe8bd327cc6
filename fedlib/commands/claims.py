"""Judge a paper's claims on the results of several runs together: ``fedlib claims figures/mine/fedthe figures/mine/fedthe-own``.

A run judges the claims on its own results. Methods that were run apart, but were trained alike on the same clients, are judged together
here, from the files in their folders, and so are seeds; claims about figures are left to the runs, since a file does not tell the margin of
a point.
"""

from pathlib import Path

import pandas as pd

from fedlib.commands.folders import changed, of_papers, paper_of, read_and_write, reader, seeds_of, tables
from fedlib.published import cells, claims_of
from fedlib.published.ledger import ledger


def claims(*folders: str | Path) -> pd.DataFrame:
    """The ledger (``fedlib.published.ledger``) of those claims that read tables alone, one of the folders' among them. Raises as
    ``fedlib.commands.folders.tables``, and FileNotFoundError for a run that did not finish."""
    found = tables(folders)
    paper = paper_of(found)
    seeds = seeds_of(folders, found.values())
    names = dict.fromkeys(name for folder in folders for name in changed(folder, paper, seeds))
    printed = set(cells(paper.name)["table"])
    able = {claim.id for claim in claims_of(paper.name).CLAIMS if printed >= {*claim.reads} and {*claim.reads} & {*found}}
    frame = ledger(paper.name, {name: frame for name, frame in found.items() if name in printed}, changed=list(names))
    return frame[frame["claim"].isin(able)].reset_index(drop=True)


def main(arguments: list[str] | None = None) -> None:
    parser = of_papers(reader("claims", __doc__, "figures/mine/fedthe figures/mine/fedthe-own --out claims.csv"))
    options = parser.parse_args(arguments)
    found = read_and_write(lambda: claims(*options.folders), options.out)
    for row in found.itertuples():
        print(f"{row.claim}: {row.text}\n  in print: {row.published}; here: {row.verdict}")
