"""`python -m regard`: the same as the command `regard`."""

from regard.cli import main

if __name__ == "__main__":
    main()
