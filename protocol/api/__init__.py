"""The messages of the protocol, one file per API.

Each file declares the request, the response and the structs within, and binds them together as `API`.
The head of a file tells what each version added. Field names, types, versions and defaults are Kafka's
(3.9 for the old versions, 4.4 for the new); `protocol.message.api_of` imports a file when it is needed.
"""
