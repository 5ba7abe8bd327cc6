"""Methods of the kit that none of its papers prints, a line each: name -> recipe.

Each becomes a row of every paper's tables whose clients and network suit it and is ranked in the comparison, as a user's own method is
(``fedlib.register``); elsewhere its row says what is missing. One that starts from ``FedAvg()`` gets each paper's own FedAvg training.
"""

from fedlib.core import Recipe

METHODS: dict[str, Recipe] = {}
