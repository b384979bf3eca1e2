"""Keys that protect connections: TLS and SASL.

Names, types, defaults and limits are those of Apache Kafka 4.4.0; see key_table.py. The comment above
a row is the text of the key: `make generate` writes it to texts/.
"""

from __future__ import annotations

from typing import Final

from pykbroker.config.kinds import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LISTENER_ONLY,
    LOGIN_TIME,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    PER_MECHANISM,
    RELOADED,
    SERVED_SASL,
    SHORT,
    STRING,
    Key,
    ListOf,
    OneOf,
    OneOfAnyCase,
    RefusedValues,
    between,
    in_area,
)

#: The classes would take part in the authentication of a SASL listener.
OTHER_PROGRAMS: Final = RefusedValues("authentication by other programs", when="a SASL listener is in use")

TLS = in_area(
    "TLS",
    #: Whether a new certificate may have another distinguished name when a keystore is replaced while running.
    Key("ssl.allow.dn.changes", BOOLEAN, False, None, LOW, acts=True),
    #: Whether a new certificate may lack alternative names of the old one when a keystore is replaced while running.
    Key("ssl.allow.san.changes", BOOLEAN, False, None, LOW, acts=True),
    #: Cipher suites that may be used; empty allows whatever the TLS library does.
    Key("ssl.cipher.suites", LIST, (), ListOf(empty=True), MEDIUM, PER_BROKER, acts=True, traits=(LISTENER_ONLY,)),
    #: Whether clients must, may or need not show a certificate: required, requested, none.
    Key("ssl.client.auth", STRING, "none", OneOf("required", "requested", "none"), MEDIUM, PER_BROKER, acts=True),
    #: TLS versions that are accepted.
    Key(
        "ssl.enabled.protocols",
        LIST,
        ("TLSv1.2", "TLSv1.3"),
        ListOf(empty=True),
        MEDIUM,
        PER_BROKER,
        acts=True,
        traits=(LISTENER_ONLY,),
    ),
    #: How a server's name is checked against its certificate: https, or empty for not at all.
    Key(
        "ssl.endpoint.identification.algorithm",
        STRING,
        "https",
        None,
        LOW,
        PER_BROKER,
        acts=True,
        traits=(LISTENER_ONLY,),
    ),
    #: Java class that makes TLS engines. Means nothing outside a JVM.
    Key("ssl.engine.factory.class", CLASS, None, None, LOW, PER_BROKER, acts=True, traits=(LISTENER_ONLY,)),
    #: Password of the private key.
    Key(
        "ssl.key.password",
        PASSWORD,
        None,
        None,
        MEDIUM,
        PER_BROKER,
        acts=True,
        traits=(
            LISTENER_ONLY,
            RELOADED,
        ),
    ),
    #: Algorithm of the Java key manager. Means nothing outside a JVM.
    Key("ssl.keymanager.algorithm", STRING, "SunX509", None, MEDIUM, PER_BROKER, acts=True, traits=(LISTENER_ONLY,)),
    #: Certificate chain in PEM, given in place of a keystore file.
    Key(
        "ssl.keystore.certificate.chain",
        PASSWORD,
        None,
        None,
        MEDIUM,
        PER_BROKER,
        acts=True,
        traits=(
            LISTENER_ONLY,
            RELOADED,
        ),
    ),
    #: Private key in PEM, given in place of a keystore file.
    Key(
        "ssl.keystore.key",
        PASSWORD,
        None,
        None,
        MEDIUM,
        PER_BROKER,
        acts=True,
        traits=(
            LISTENER_ONLY,
            RELOADED,
        ),
    ),
    #: File with the server's key and certificate.
    Key(
        "ssl.keystore.location",
        STRING,
        None,
        None,
        MEDIUM,
        PER_BROKER,
        acts=True,
        traits=(
            LISTENER_ONLY,
            RELOADED,
        ),
    ),
    #: Password of the keystore file.
    Key(
        "ssl.keystore.password",
        PASSWORD,
        None,
        None,
        MEDIUM,
        PER_BROKER,
        acts=True,
        traits=(
            LISTENER_ONLY,
            RELOADED,
        ),
    ),
    #: Format of the keystore: JKS, PKCS12 or PEM.
    Key(
        "ssl.keystore.type",
        STRING,
        "JKS",
        None,
        MEDIUM,
        PER_BROKER,
        acts=True,
        traits=(
            LISTENER_ONLY,
            RELOADED,
        ),
    ),
    #: Rules that turn a certificate's distinguished name into a short name; the first that matches counts.
    Key("ssl.principal.mapping.rules", STRING, "DEFAULT", None, LOW, acts=True),
    #: TLS version with which a context is made; ssl.enabled.protocols narrows it.
    Key("ssl.protocol", STRING, "TLSv1.3", None, MEDIUM, PER_BROKER, acts=True, traits=(LISTENER_ONLY,)),
    #: Java security provider for TLS. Means nothing outside a JVM.
    Key("ssl.provider", STRING, None, None, MEDIUM, PER_BROKER, acts=True, traits=(LISTENER_ONLY,)),
    #: Java source of random numbers for TLS. Means nothing outside a JVM.
    Key("ssl.secure.random.implementation", STRING, None, None, LOW, PER_BROKER, traits=(LISTENER_ONLY,)),
    #: Algorithm of the Java trust manager. Means nothing outside a JVM.
    Key("ssl.trustmanager.algorithm", STRING, "PKIX", None, MEDIUM, PER_BROKER, acts=True, traits=(LISTENER_ONLY,)),
    #: Trusted certificates in PEM, given in place of a truststore file.
    Key(
        "ssl.truststore.certificates",
        PASSWORD,
        None,
        None,
        MEDIUM,
        PER_BROKER,
        acts=True,
        traits=(
            LISTENER_ONLY,
            RELOADED,
        ),
    ),
    #: File with trusted certificates.
    Key(
        "ssl.truststore.location",
        STRING,
        None,
        None,
        MEDIUM,
        PER_BROKER,
        acts=True,
        traits=(
            LISTENER_ONLY,
            RELOADED,
        ),
    ),
    #: Password of the truststore file.
    Key(
        "ssl.truststore.password",
        PASSWORD,
        None,
        None,
        MEDIUM,
        PER_BROKER,
        acts=True,
        traits=(
            LISTENER_ONLY,
            RELOADED,
        ),
    ),
    #: Format of the truststore: JKS, PKCS12 or PEM.
    Key(
        "ssl.truststore.type",
        STRING,
        "JKS",
        None,
        MEDIUM,
        PER_BROKER,
        acts=True,
        traits=(
            LISTENER_ONLY,
            RELOADED,
        ),
    ),
)

SASL = in_area(
    "SASL",
    #: Class that answers a SASL client's questions, for connections that the node opens.
    Key("sasl.client.callback.handler.class", CLASS, None, None, MEDIUM, refused=OTHER_PROGRAMS),
    #: SASL mechanisms that are offered.
    Key(
        "sasl.enabled.mechanisms",
        LIST,
        ("GSSAPI",),
        ListOf(empty=True),
        MEDIUM,
        PER_BROKER,
        acts=True,
        traits=(SERVED_SASL,),
    ),
    #: Login module and its options for one mechanism, in the form of a JAAS file; give it per listener and mechanism.
    Key(
        "sasl.jaas.config",
        PASSWORD,
        None,
        None,
        MEDIUM,
        PER_BROKER,
        acts=True,
        traits=(
            PER_MECHANISM,
            SERVED_SASL,
        ),
    ),
    #: Path of kinit.
    Key("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", None, MEDIUM, PER_BROKER, traits=(LOGIN_TIME,)),
    #: Least time between two refreshes of a Kerberos ticket.
    Key("sasl.kerberos.min.time.before.relogin", LONG, 60000, None, MEDIUM, PER_BROKER, traits=(LOGIN_TIME,)),
    #: Rules that turn a Kerberos principal into a short name; the first that matches counts.
    Key("sasl.kerberos.principal.to.local.rules", LIST, ("DEFAULT",), ListOf(empty=True), MEDIUM, PER_BROKER),
    #: Service name under which the brokers are known to Kerberos.
    Key("sasl.kerberos.service.name", STRING, None, None, MEDIUM, PER_BROKER),
    #: Share of random variation in the time of a ticket's renewal.
    Key("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, None, MEDIUM, PER_BROKER, traits=(LOGIN_TIME,)),
    #: Share of a ticket's life after which it is renewed.
    Key("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, None, MEDIUM, PER_BROKER, traits=(LOGIN_TIME,)),
    #: Class that answers the questions of a login module.
    Key(
        "sasl.login.callback.handler.class", CLASS, None, None, MEDIUM, traits=(PER_MECHANISM,), refused=OTHER_PROGRAMS
    ),
    #: Class that performs the login.
    Key("sasl.login.class", CLASS, None, None, MEDIUM, traits=(PER_MECHANISM,), refused=OTHER_PROGRAMS),
    #: How long connecting to the OAuth provider may take.
    Key("sasl.login.connect.timeout.ms", INT, None, None, LOW),
    #: How long reading from the OAuth provider may take.
    Key("sasl.login.read.timeout.ms", INT, None, None, LOW),
    #: A token is renewed at least this long before it expires, where its life permits.
    Key("sasl.login.refresh.buffer.seconds", SHORT, 300, None, MEDIUM, PER_BROKER, traits=(LOGIN_TIME,)),
    #: Least time between two renewals of a token, where its life permits.
    Key("sasl.login.refresh.min.period.seconds", SHORT, 60, None, MEDIUM, PER_BROKER, traits=(LOGIN_TIME,)),
    #: Share of a token's life after which it is renewed.
    Key("sasl.login.refresh.window.factor", DOUBLE, 0.8, None, MEDIUM, PER_BROKER, traits=(LOGIN_TIME,)),
    #: Share of random variation in the time of a token's renewal.
    Key("sasl.login.refresh.window.jitter", DOUBLE, 0.05, None, MEDIUM, PER_BROKER, traits=(LOGIN_TIME,)),
    #: Longest pause between attempts to reach the OAuth provider.
    Key("sasl.login.retry.backoff.max.ms", LONG, 10000, None, LOW),
    #: First pause between attempts to reach the OAuth provider; it doubles each time.
    Key("sasl.login.retry.backoff.ms", LONG, 100, None, LOW),
    #: SASL mechanism towards controllers.
    Key("sasl.mechanism.controller.protocol", STRING, "GSSAPI", None, HIGH, acts=True),
    #: SASL mechanism between brokers.
    Key("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", None, MEDIUM, PER_BROKER, acts=True),
    #: With OAUTHBEARER: whether a token is accepted although no expected audience is set.
    Key("sasl.oauthbearer.allow.unverified.audience", BOOLEAN, False, None, MEDIUM),
    #: With OAUTHBEARER: whether a token is accepted although no expected issuer is set.
    Key("sasl.oauthbearer.allow.unverified.issuer", BOOLEAN, False, None, MEDIUM),
    #: Algorithm that signs an assertion sent to the OAuth provider.
    Key("sasl.oauthbearer.assertion.algorithm", STRING, "RS256", OneOfAnyCase("ES256", "RS256"), MEDIUM),
    #: Audience claim of the assertion.
    Key("sasl.oauthbearer.assertion.claim.aud", STRING, None, None, MEDIUM),
    #: Seconds after which the assertion expires.
    Key("sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300, between(0, 86400), LOW),
    #: Issuer claim of the assertion.
    Key("sasl.oauthbearer.assertion.claim.iss", STRING, None, None, MEDIUM),
    #: Whether the assertion gets a unique id.
    Key("sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, False, None, MEDIUM),
    #: Seconds by which the assertion's begin is set back, against clocks that differ.
    Key("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60, between(0, 3600), LOW),
    #: Subject claim of the assertion.
    Key("sasl.oauthbearer.assertion.claim.sub", STRING, None, None, MEDIUM),
    #: File with a ready assertion, in place of making one.
    Key("sasl.oauthbearer.assertion.file", STRING, None, None, MEDIUM),
    #: File with the key that signs the assertion.
    Key("sasl.oauthbearer.assertion.private.key.file", STRING, None, None, MEDIUM),
    #: Passphrase of that key.
    Key("sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None, None, MEDIUM),
    #: JSON file with further headers and claims of the assertion.
    Key("sasl.oauthbearer.assertion.template.file", STRING, None, None, MEDIUM),
    #: Client id for the OAuth client credentials grant.
    Key("sasl.oauthbearer.client.credentials.client.id", STRING, None, None, MEDIUM),
    #: Secret that belongs to that client id.
    Key("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None, None, MEDIUM),
    #: By how many seconds the clocks of provider and broker may differ.
    Key("sasl.oauthbearer.clock.skew.seconds", INT, 30, None, LOW),
    #: Audiences of which a token must name one; empty does not look.
    Key("sasl.oauthbearer.expected.audience", LIST, (), ListOf(empty=True), HIGH),
    #: Issuer that a token must name; not set does not look.
    Key("sasl.oauthbearer.expected.issuer", STRING, None, None, HIGH),
    #: How often the provider's keys are fetched again.
    Key("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000, None, LOW),
    #: Longest pause between attempts to fetch those keys.
    Key("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10000, None, LOW),
    #: First pause between attempts to fetch those keys; it doubles each time.
    Key("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, None, LOW),
    #: Where the provider's keys are: an http(s) or file URL.
    Key("sasl.oauthbearer.jwks.endpoint.url", STRING, None, None, MEDIUM),
    #: Class that gets tokens.
    Key(
        "sasl.oauthbearer.jwt.retriever.class",
        CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        None,
        MEDIUM,
    ),
    #: Class that checks tokens.
    Key(
        "sasl.oauthbearer.jwt.validator.class",
        CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        None,
        MEDIUM,
    ),
    #: Scope that is asked for with a token.
    Key("sasl.oauthbearer.scope", STRING, None, None, MEDIUM),
    #: Name of the claim that holds the scope.
    Key("sasl.oauthbearer.scope.claim.name", STRING, "scope", None, LOW),
    #: Name of the claim that holds the subject.
    Key("sasl.oauthbearer.sub.claim.name", STRING, "sub", None, LOW),
    #: Where tokens are issued: an http(s) or file URL.
    Key("sasl.oauthbearer.token.endpoint.url", STRING, None, None, MEDIUM),
    #: Class that checks what SASL clients send, per listener and mechanism.
    Key(
        "sasl.server.callback.handler.class", CLASS, None, None, MEDIUM, traits=(PER_MECHANISM,), refused=OTHER_PROGRAMS
    ),
    #: Largest SASL message that is read before a client is authenticated.
    Key("sasl.server.max.receive.size", INT, 524_288, None, MEDIUM, acts=True, traits=(SERVED_SASL,)),
)
