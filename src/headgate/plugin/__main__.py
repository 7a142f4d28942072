"""`python -m headgate.plugin`: the plugin where it is not on PATH."""

from headgate.plugin import main

if __name__ == "__main__":
    main()
