"""`python -m headgate.plugin` runs the plugin when it is not on PATH."""

from headgate.plugin import main

if __name__ == "__main__":
    main()
