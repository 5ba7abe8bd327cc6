"""How clients and their shifts are made: a frozen dataclass with ``build(seed, root) -> Benchmark``, one file each.

A protocol of your own needs nothing else: see ``fedlib.Clients``.
"""

from fedlib.protocols.brfl import BRFL
from fedlib.protocols.brfl_imagenet import BRFLImageNet
from fedlib.protocols.btgfl import BTGFL
from fedlib.protocols.downstream import Downstream
from fedlib.protocols.fedicon import Domains
from fedlib.protocols.ttpfl import TTPFL
from fedlib.protocols.upfl import UPFL

PROTOCOLS = (BRFL, BRFLImageNet, BTGFL, TTPFL, UPFL, Domains, Downstream)
