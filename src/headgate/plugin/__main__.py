"""Run the plugin by `python -m headgate.plugin`, for example when `kubectl-traffic` is not on PATH."""

from headgate.plugin import main

if __name__ == "__main__":
    main()
