"""What every stage of a method runs on: checks at its boundary, device, optimisers, stacks of clients, progress, time."""
