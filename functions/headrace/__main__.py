"""`python -m headrace` is the command `headrace`, for who has not the folder of scripts in PATH."""

from headrace.cli.start import main

if __name__ == "__main__":
    main()
