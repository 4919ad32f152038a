"""TLS contexts for brokers and token endpoints, and sentences for what TLS refuses.

The context is a client's own (`PROTOCOL_TLS_CLIENT`): it checks the broker's certificate and, unless
told otherwise, its host name, from TLS 1.2 on. It does not obey SSLKEYLOGFILE, which would write
the keys of the connections into a file.
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Final

from tidelog.client.errors import (
    AuthenticationFailed,
    ConnectionBroken,
    HandshakeBroken,
    SecuritySettingsError,
)

if TYPE_CHECKING:
    from tidelog.client.security.stores import Identity, Tls

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_HOST_NAME: Final = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH
_UNKNOWN_ISSUER: Final = frozenset({2, 18, 19, 20, 21})
# Alerts by which a broker says that it does not accept the client's certificate.
_CERTIFICATE_ALERTS: Final = (
    "ALERT_BAD_CERTIFICATE",
    "ALERT_UNSUPPORTED_CERTIFICATE",
    "ALERT_CERTIFICATE_REVOKED",
    "ALERT_CERTIFICATE_EXPIRED",
    "ALERT_CERTIFICATE_UNKNOWN",
    "ALERT_UNKNOWN_CA",
    "ALERT_ACCESS_DENIED",
    "ALERT_CERTIFICATE_REQUIRED",
    "ALERT_HANDSHAKE_FAILURE",
)
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")


def context_of(tls: Tls) -> ssl.SSLContext:
    """Returns a context for connections. Raises SecuritySettingsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.checks_host_name
    context.minimum_version = VERSIONS[min(tls.versions)]
    context.maximum_version = VERSIONS[max(tls.versions)]
    if tls.trust is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(cadata=tls.trust)
        except (ssl.SSLError, ValueError) as error:
            raise SecuritySettingsError(
                f"the trust store has a certificate that cannot be read: {_words(error)}"
            ) from None
    if tls.identity is not None:
        load_identity(context, tls.identity)
    return context


def load_identity(context: ssl.SSLContext, identity: Identity) -> None:
    """Loads key and certificates from memory: `load_cert_chain` reads only files."""
    descriptor = os.memfd_create("identity", os.MFD_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(identity.pem.reveal().encode())
        password = None if identity.password is None else identity.password.reveal()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=password or "")
    except (ssl.SSLError, ValueError) as error:
        raise SecuritySettingsError(
            "the key store cannot be loaded: ssl.key.password is wrong, the key is not that of the"
            f" first certificate, or either is damaged ({_words(error)})"
        ) from None
    finally:
        os.close(descriptor)


def failure(
    address: str, error: OSError, *, is_handshake: bool
) -> ConnectionBroken | AuthenticationFailed:
    """Returns what a failure of a TLS connection means, as an error with a sentence."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationFailed(f"{address}: {_of_certificate(error)}")
    reason = getattr(error, "reason", None) or ""
    if isinstance(error, ssl.SSLError):
        if any(alert in reason for alert in _CERTIFICATE_ALERTS):
            return AuthenticationFailed(
                f"{address} refuses the TLS connection: it demands a client certificate that it"
                f" trusts (ssl.keystore.location) ({_words(error)})"
            )
        if "PROTOCOL_VERSION" in reason or "UNSUPPORTED_PROTOCOL" in reason:
            return AuthenticationFailed(
                f"{address} has no TLS version in common with the client (ssl.enabled.protocols)"
            )
        if any(each in reason for each in _NO_TLS):
            return AuthenticationFailed(
                f"{address} does not speak TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT"
            )
    is_closed = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError)
    if is_handshake and is_closed:
        return HandshakeBroken(
            f"{address} closed the connection during the TLS handshake: its listener may not speak"
            " TLS (security.protocol)"
        )
    if is_closed:
        return ConnectionBroken(f"{address} closed the connection")
    return ConnectionBroken(f"{address}: {_words(error)}")


def _of_certificate(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _HOST_NAME:
        hint = "; ssl.endpoint.identification.algorithm= (empty) does not compare names"
    elif error.verify_code in _UNKNOWN_ISSUER:
        hint = "; ssl.truststore.location names the certificates to trust"
    else:
        hint = ""
    return f"the certificate is not accepted: {error.verify_message.rstrip('.')}{hint}"


def _words(error: Exception) -> str:
    """Returns OpenSSL's reason in words, without the name of its source file."""
    reason = getattr(error, "reason", None)
    return reason.replace("_", " ").lower() if isinstance(reason, str) else str(error)
