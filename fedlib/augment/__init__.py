"""Image augmentation as batched tensor operations on any device; every draw is made on the CPU by an explicit generator."""
