"""Why directories of Kafka are not adopted."""


class AdoptionError(Exception):
    """Something keeps directories of Kafka from being adopted; the text is a sentence."""
