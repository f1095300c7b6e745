"""`python -m alpenglow` is the command line."""

from alpenglow.cli import main

if __name__ == "__main__":
    main()
