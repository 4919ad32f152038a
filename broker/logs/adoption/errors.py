"""The error of an adoption."""


class AdoptionError(Exception):
    """Directories of Kafka cannot be adopted; the text is the reason, as a sentence."""
