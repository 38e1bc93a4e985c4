"""``python -m tasks.fetch WHAT --to DIR``: the weights of a policy (:mod:`tasks.commands.fetch`)."""

from tasks.commands.fetch import main

if __name__ == "__main__":
    main()
