"""Run the plugin by `python -m headgate.cli.traffic`, for example when `kubectl-traffic` is not on PATH."""

from headgate.cli.traffic import main

if __name__ == "__main__":
    main()
