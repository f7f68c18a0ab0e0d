"""Options of authentication, authorization and encryption."""

from __future__ import annotations

from runtime.config.option import (
    ConfigOption,
    bool_option,
    choice_option,
    duration_option,
    float_option,
    int_option,
    parse_choices,
    parse_list,
    string_option,
)

_ROLES = ("viewer", "submitter", "operator", "admin")

SECURITY_AUTHENTICATION = choice_option(
    "security.authentication",
    "token",
    "Whether REST and gRPC require the cluster's token. A submit executes code, so turn it off only where every client "
    "that reaches the ports may do that.",
    "token",
    "none",
)
SECURITY_ALLOW_UNAUTHENTICATED = bool_option(
    "security.allow-unauthenticated",
    "With security.authentication: none every client that reaches a port of the cluster may run code as its user. "
    "Therefore ports beyond loopback are refused, unless this is true as well.",
    default=False,
)
SECURITY_TOKEN_FILE = string_option(
    "security.token-file",
    "",
    "File with the cluster's token, mode 0600, made at the first start. The same on all hosts and for clients.",
    default_text="<run>/token",
)
SECURITY_CLUSTER_KEY_FILE = string_option(
    "security.cluster-key-file",
    "",
    "File with the key under which the cluster seals its records in etcd, mode 0600, made at the first start. The same "
    "on all hosts; clients do not need it.",
    default_text="<run>/cluster-key",
)
SSL_INTERNAL_ENABLED = bool_option(
    "security.ssl.internal.enabled",
    "Encrypt the links between processes of the cluster, each end of which shows a certificate. The same for all "
    "processes. `flinklike certs` makes certificates.",
    default=False,
)
SSL_INTERNAL_CERT = string_option(
    "security.ssl.internal.cert",
    "",
    "PEM file with the certificate of the processes on this host, for both ends of a connection; it names the "
    "addresses under which they are dialled.",
)
SSL_INTERNAL_KEY = string_option(
    "security.ssl.internal.key", "", "PEM file with its private key, mode 0600; it may be the same file."
)
SSL_INTERNAL_CA = string_option(
    "security.ssl.internal.ca",
    "",
    "PEM file with the CAs whose certificates are accepted from other processes. They sign for nothing else.",
)
SSL_REST_ENABLED = bool_option(
    "security.ssl.rest.enabled",
    "Have REST speak TLS, and nothing else. The same for all JobManagers and for the command line of their hosts.",
    default=False,
)
SSL_REST_AUTHENTICATION = bool_option(
    "security.ssl.rest.authentication-enabled",
    "Let in only clients that show a certificate of security.ssl.rest.ca. They need a token too.",
    default=False,
)
SSL_REST_CERT = string_option(
    "security.ssl.rest.cert",
    "",
    "PEM file with the certificate of REST on this host; it names rest.address. A JobManager that stands by shows it "
    "to the leader, and the command line to both.",
)
SSL_REST_KEY = string_option(
    "security.ssl.rest.key", "", "PEM file with its private key, mode 0600; it may be the same file."
)
SSL_REST_CA = string_option(
    "security.ssl.rest.ca",
    "",
    "PEM file with the CAs of REST's certificates: that of the leader, and those of clients.",
)
PRINCIPAL_REQUESTS = int_option(
    "security.principal.requests-per-second",
    2000,
    "Requests of one principal in the long run, five times as many at once; above it REST answers 429. The cluster's "
    "own token is one principal.",
    low=1,
)
PRINCIPAL_RUNNING = int_option(
    "security.principal.max-running-requests",
    3000,
    "Requests of one principal that are not answered yet, long polls among them; above it REST answers 429. A "
    "principal has at most half of the connections that others leave of those that one address may have: 3/8 of the "
    "open files that a JobManager may have.",
    low=1,
)
PRINCIPAL_JOBS = int_option(
    "security.principal.max-unfinished-jobs",
    20_000,
    "Jobs of one principal that may be unfinished at once; above it submit answers 429.",
    low=1,
)
NAMESPACE_JOBS = int_option(
    "security.namespace.max-unfinished-jobs",
    20_000,
    "Jobs of one namespace that may be unfinished at once; above it submit answers 429.",
    low=1,
)
DELEGATION_TOKENS_ENABLED = bool_option(
    "security.delegation.tokens.enabled",
    "Let the leading JobManager obtain the credentials of the providers below security.delegation.token.provider.*, "
    "and give them to all TaskManagers.",
    default=True,
)
DELEGATION_TOKENS_TIME_RATIO = float_option(
    "security.delegation.tokens.renewal.time-ratio",
    0.75,
    "New delegation tokens are obtained after this share of the lifetime of the present ones.",
    low=0.01,
    high=1.0,
)
DELEGATION_TOKENS_RETRY_BACKOFF = duration_option(
    "security.delegation.tokens.renewal.retry.backoff",
    "1 h",
    "Longest pause before a provider of delegation tokens is asked again after a failure. The pause is 1 s at first, "
    "and doubles with each failure.",
)
INTERNAL_TOKEN_FILE = string_option(
    "security.internal.token-file",
    "",
    "File with the credential that processes of the cluster show each other, mode 0600, made at the first start, the "
    "same on all hosts. A file allows to change the credential while processes run: they accept all its lines, and "
    "send the first.",
    default_text="none: it is derived from the cluster's key",
)
INTERNAL_ACCEPT_TOKEN = bool_option(
    "security.internal.accept-cluster-token",
    "Send and accept the cluster's token between processes as well. For the time of an upgrade from a release that "
    "knows only the token: true until all processes are of this release, then false.",
    default=False,
)
JWT_ISSUER = string_option(
    "security.jwt.issuer",
    "",
    "Issuer whose JSON Web Tokens sign in at REST beside the cluster's tokens: exactly their claim `iss`. Needs "
    "security.jwt.audience, and security.jwt.key-file or security.jwt.jwks.",
)
JWT_AUDIENCE: ConfigOption[tuple[str, ...]] = ConfigOption(
    "security.jwt.audience",
    parse_list,
    (),
    "Audiences of JSON Web Tokens: a token's claim `aud` has to name one of them.",
    "List<String>",
    "(none)",
)
JWT_KEY_FILE = string_option(
    "security.jwt.key-file",
    "",
    "File with the key of the issuer: a public key in PEM form (RSA, P-256, P-384, P-521, Ed25519), or a secret of at "
    "least 32 bytes, mode 0600. May be replaced while JobManagers run.",
)
JWT_JWKS = string_option(
    "security.jwt.jwks",
    "",
    "The issuer's public keys as a JSON Web Key Set: a file, which may be replaced while JobManagers run, or an "
    "address that begins with https://.",
)
JWT_JWKS_CA_FILE = string_option(
    "security.jwt.jwks-ca-file",
    "",
    "PEM file with the CAs whose certificates are accepted from the address in security.jwt.jwks.",
    default_text="those of the system",
)
JWT_JWKS_REFRESH = duration_option(
    "security.jwt.jwks-refresh-interval",
    "10 min",
    "How often the keys are fetched from the address in security.jwt.jwks.",
    low="1 s",
)
JWT_JWKS_PAUSE = duration_option(
    "security.jwt.jwks-refresh-pause",
    "30 s",
    "Least time between two fetches of the keys: after a failure, and when a token names a key that is not known.",
    low="100 ms",
)
JWT_LEEWAY = duration_option(
    "security.jwt.leeway", "30 s", "By how much the issuer's clock and ours may differ.", low="0 s"
)
JWT_CLAIM_NAME = string_option(
    "security.jwt.claims.name",
    "sub",
    "The claim that names the principal. `a.b` is the claim of that name, or `b` within `a`.",
)
JWT_CLAIM_ROLE = string_option(
    "security.jwt.claims.role",
    "role",
    "The claim with the role, or with a list of roles of which the highest counts. A token without a role is refused.",
)
JWT_CLAIM_NAMESPACE = string_option(
    "security.jwt.claims.namespace",
    "namespace",
    "The claim with the namespace, `*` for all. Without it: `default`, and all for an admin.",
)
JWT_ROLES: ConfigOption[tuple[tuple[str, str], ...]] = ConfigOption(
    "security.jwt.roles",
    parse_choices(_ROLES),
    (),
    "Roles by values of the role's claim, groups for instance: `etl-team=submitter, data-platform=operator`. Then no "
    "other value is a role.",
    "List<String>",
    "(none: the values are roles)",
)
