"""Texts of the keys in keys/security.py."""

TEXTS = """\
ssl.allow.dn.changes
    Whether a new certificate may have another distinguished name when a keystore is replaced while running.
ssl.allow.san.changes
    Whether a new certificate may lack alternative names of the old one when a keystore is replaced while running.
ssl.cipher.suites
    Cipher suites that may be used; empty allows whatever the TLS library does.
ssl.client.auth
    Whether clients must, may or need not show a certificate: required, requested, none.
ssl.enabled.protocols
    TLS versions that are accepted.
ssl.endpoint.identification.algorithm
    How a server's name is checked against its certificate: https, or empty for not at all.
ssl.engine.factory.class
    Java class that makes TLS engines. Means nothing outside a JVM.
ssl.key.password
    Password of the private key.
ssl.keymanager.algorithm
    Algorithm of the Java key manager. Means nothing outside a JVM.
ssl.keystore.certificate.chain
    Certificate chain in PEM, given in place of a keystore file.
ssl.keystore.key
    Private key in PEM, given in place of a keystore file.
ssl.keystore.location
    File with the server's key and certificate.
ssl.keystore.password
    Password of the keystore file.
ssl.keystore.type
    Format of the keystore: JKS, PKCS12 or PEM.
ssl.principal.mapping.rules
    Rules that turn a certificate's distinguished name into a short name; the first that matches counts.
ssl.protocol
    TLS version with which a context is made; ssl.enabled.protocols narrows it.
ssl.provider
    Java security provider for TLS. Means nothing outside a JVM.
ssl.secure.random.implementation
    Java source of random numbers for TLS. Means nothing outside a JVM.
ssl.trustmanager.algorithm
    Algorithm of the Java trust manager. Means nothing outside a JVM.
ssl.truststore.certificates
    Trusted certificates in PEM, given in place of a truststore file.
ssl.truststore.location
    File with trusted certificates.
ssl.truststore.password
    Password of the truststore file.
ssl.truststore.type
    Format of the truststore: JKS, PKCS12 or PEM.
sasl.client.callback.handler.class
    Class that answers a SASL client's questions, for connections that the node opens.
sasl.enabled.mechanisms
    SASL mechanisms that are offered.
sasl.jaas.config
    Login module and its options for one mechanism, in the form of a JAAS file; give it per listener and mechanism.
sasl.kerberos.kinit.cmd
    Path of kinit.
sasl.kerberos.min.time.before.relogin
    Least time between two refreshes of a Kerberos ticket.
sasl.kerberos.principal.to.local.rules
    Rules that turn a Kerberos principal into a short name; the first that matches counts.
sasl.kerberos.service.name
    Service name under which the brokers are known to Kerberos.
sasl.kerberos.ticket.renew.jitter
    Share of random variation in the time of a ticket's renewal.
sasl.kerberos.ticket.renew.window.factor
    Share of a ticket's life after which it is renewed.
sasl.login.callback.handler.class
    Class that answers the questions of a login module.
sasl.login.class
    Class that performs the login.
sasl.login.connect.timeout.ms
    How long connecting to the OAuth provider may take.
sasl.login.read.timeout.ms
    How long reading from the OAuth provider may take.
sasl.login.refresh.buffer.seconds
    A token is renewed at least this long before it expires, where its life permits.
sasl.login.refresh.min.period.seconds
    Least time between two renewals of a token, where its life permits.
sasl.login.refresh.window.factor
    Share of a token's life after which it is renewed.
sasl.login.refresh.window.jitter
    Share of random variation in the time of a token's renewal.
sasl.login.retry.backoff.max.ms
    Longest pause between attempts to reach the OAuth provider.
sasl.login.retry.backoff.ms
    First pause between attempts to reach the OAuth provider; it doubles each time.
sasl.mechanism.controller.protocol
    SASL mechanism towards controllers.
sasl.mechanism.inter.broker.protocol
    SASL mechanism between brokers.
sasl.oauthbearer.assertion.algorithm
    Algorithm that signs an assertion sent to the OAuth provider.
sasl.oauthbearer.assertion.claim.aud
    Audience claim of the assertion.
sasl.oauthbearer.assertion.claim.exp.seconds
    Seconds after which the assertion expires.
sasl.oauthbearer.assertion.claim.iss
    Issuer claim of the assertion.
sasl.oauthbearer.assertion.claim.jti.include
    Whether the assertion gets a unique id.
sasl.oauthbearer.assertion.claim.nbf.seconds
    Seconds by which the assertion's begin is set back, against clocks that differ.
sasl.oauthbearer.assertion.claim.sub
    Subject claim of the assertion.
sasl.oauthbearer.assertion.file
    File with a ready assertion, in place of making one.
sasl.oauthbearer.assertion.private.key.file
    File with the key that signs the assertion.
sasl.oauthbearer.assertion.private.key.passphrase
    Passphrase of that key.
sasl.oauthbearer.assertion.template.file
    JSON file with further headers and claims of the assertion.
sasl.oauthbearer.client.credentials.client.id
    Client id for the OAuth client credentials grant.
sasl.oauthbearer.client.credentials.client.secret
    Secret that belongs to that client id.
sasl.oauthbearer.clock.skew.seconds
    By how many seconds the clocks of provider and broker may differ.
sasl.oauthbearer.expected.audience
    Audiences of which a token must name one; empty does not look.
sasl.oauthbearer.expected.issuer
    Issuer that a token must name; not set does not look.
sasl.oauthbearer.jwks.endpoint.refresh.ms
    How often the provider's keys are fetched again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    Longest pause between attempts to fetch those keys.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    First pause between attempts to fetch those keys; it doubles each time.
sasl.oauthbearer.jwks.endpoint.url
    Where the provider's keys are: an http(s) or file URL.
sasl.oauthbearer.jwt.retriever.class
    Class that gets tokens.
sasl.oauthbearer.jwt.validator.class
    Class that checks tokens.
sasl.oauthbearer.scope
    Scope that is asked for with a token.
sasl.oauthbearer.scope.claim.name
    Name of the claim that holds the scope.
sasl.oauthbearer.sub.claim.name
    Name of the claim that holds the subject.
sasl.oauthbearer.token.endpoint.url
    Where tokens are issued: an http(s) or file URL.
sasl.server.callback.handler.class
    Class that checks what SASL clients send, per listener and mechanism.
sasl.server.max.receive.size
    Largest SASL message that is read before a client is authenticated.
"""
