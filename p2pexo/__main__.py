"""``python -m p2pexo`` is the command line."""

from p2pexo.cli.main import main

if __name__ == "__main__":
    main()
