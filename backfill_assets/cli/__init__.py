"""cli: the command line, one file a verb. Arguments in, exit code out."""
