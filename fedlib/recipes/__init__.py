"""Named methods: which training, which personal part, which adaptation. One table per paper; a new method is one line in it."""
