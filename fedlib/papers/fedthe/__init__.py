"""FedTHE and its benchmark BRFL: everything that belongs to this paper and to no other."""
