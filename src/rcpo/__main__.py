"""`python -m rcpo` is the command `rcpo`."""

from rcpo.cli import main

if __name__ == "__main__":
    main()
