"""``python -m fedlib.cache``, as ``fedlib cache``: what the stage cache holds, and removing it."""

from fedlib.cache.contents import main

if __name__ == "__main__":
    main()
