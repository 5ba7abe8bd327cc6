"""FedICON: everything that belongs to this paper and to no other."""
