"""What the five papers claim, each claim with a check that is run on the printed cells and on measured ones.

One file per paper; a check is a function from ``Cells`` to findings. Ids: H FedTHE, U UPFL, A ATP, I FedICON, B BTFL; an id that is a
figure's (F3) is a check of what the paper says about that figure. Claims about figures read the figure's csv file, whose columns
are given here. A claim about numbers that no table or figure of the paper shows reads a frame filed under the claim's own id (U6, A16).
"""

from fedlib.published.claims import atp, btfl, fedicon, fedthe, upfl

CLAIMS = {"fedthe": fedthe.CLAIMS, "upfl": upfl.CLAIMS, "atp": atp.CLAIMS, "fedicon": fedicon.CLAIMS, "btfl": btfl.CLAIMS}

# Every figure frame is long: what tells a point apart, then the plotted value ``mean`` (accuracy in percent unless the figure plots
# something else); ``std`` over seeds and the paired ``units`` may follow. What is read off the shape of a curve (where it crosses, how it
# spreads) has no margin: it is decided on the means over several seeds, and left open on one. These columns close every frame and say
# what was run, as in the result tables.
PROVENANCE = ("n_seeds", "run_dataset", "run_model", "status")

# figure (or claim) -> its columns besides std and PROVENANCE.
# setting, method and column: the words of the tables. density: of weight on an even grid, in any unit.
FIGURE_COLUMNS: dict[str, dict[str, tuple[str, ...]]] = {
    "fedthe": {
        "F2a": ("method", "column", "mean"),
        "F2b": ("method", "column", "mean"),  # gain over FedAvg+FT in points
        "F5": ("model", "method", "mean"),  # std: over the five tests
        "F6": ("method", "column", "mean"),  # method LP, FT, LP-FT; column original, corrupted, natural, domain
        "F7": ("method", "column", "mean"),
        "F8": ("round", "method", "column", "mean"),
        "F9": ("round", "method", "column", "mean"),
        "F10": ("round", "method", "column", "mean"),
        "F11": ("round", "method", "column", "mean"),
        "F12": ("round", "method", "column", "mean"),
        "F13": ("round", "method", "column", "mean"),
        "F14": ("setting", "method", "weight", "mean"),  # mixture; method shared (one row per weight), oracle, FedTHE, FedTHE+
        "F15": ("setting", "method", "weight", "mean"),
        "F16": ("alpha", "beta", "column", "mean"),
        "F17": ("column", "weight", "density"),  # weight of the local head
        "F18": ("method", "label", "x", "y"),  # method: with history, without history
        "F19": ("method", "column", "weight", "density"),
        "H26": ("method", "column", "mean"),  # method: T3A by sample, T3A by batch
    },
    "upfl": {
        "F2": ("client", "step", "column", "mean"),  # column accuracy, loss, entropy; step 0 is before adaptation
        "F3": ("share", "method", "mean"),
        "F4": ("method", "column", "mean"),  # column validation, test
        "F5": ("round", "method", "strength", "mean"),  # strength: lambda of HeteroFedTTA, 0 for Tent
        "AF2": ("dataset", "round", "method", "column", "mean"),
        "U6": ("alpha", "method", "mean"),  # methods with one model for all clients
        "U14": ("client", "mean"),  # steps that FedTTA++ keeps
    },
    "atp": {
        "F2": ("method", "setting", "mean"),  # setting feature shift, label shift
        # grouping none (NoAdapt, rate 0), type or block; modules among them "running mean" and "running variance" (types) and
        # "head" (block: the last linear layer); mean of F4: the learned rate
        "F3": ("setting", "grouping", "modules", "rate", "mean"),
        "F4": ("setting", "grouping", "modules", "mean"),
        "F5": ("column", "size", "method", "mean"),  # column cohort, batch
        "F8": ("cohort", "round", "column", "mean"),  # column train, test; mean: loss
        "F9": ("panel", "alpha", "label", "z", "density", "accuracy"),  # panel train, test; accuracy in percent, of the whole panel
        "A16": ("rounds", "parameters", "modules"),  # one row
        "A17": ("peak_gigabytes",),  # one row
    },
    "fedicon": {
        "F1b": ("source", "column", "mean"),  # source single, heterogeneous; column: the target
        "F3a": ("clients", "method", "mean"),
        "F3b": ("epochs", "method", "mean"),
    },
    "btfl": {
        "F1": ("classes", "column", "mean"),  # column similarity, alignment
        "F4": ("setting", "method", "column", "mean"),
        "F5": ("model", "method", "column", "mean"),
        "F6": ("column", "weight", "density"),  # weight of the global head, bin centres; column average: mean of the first four
        "B13": ("strength", "column", "mean"),  # prior strength
    },
}
