#include "common/rpc/creds.h"
#include <grpc/grpc_security_constants.h>
#include <grpc/support/alloc.h>
#include <string.h>

bool rpc_is_unix(const char *address)
{
    return !strncmp(address, "unix:", 5) || *address == '/' || *address == '.';
}

static bool encrypts(const struct cluster *c, const char *address)
{
    return c && c->kind == CLUSTER_TLS && !rpc_is_unix(address);
}

grpc_channel_credentials *rpc_channel_creds(const struct cluster *c, const char *address)
{
    if (!encrypts(c, address))
        return grpc_insecure_credentials_create();
    struct cluster_certs now;
    if (cluster_certs_now(c, &now))
        return NULL;
    grpc_ssl_pem_key_cert_pair own = {now.key, now.cert};
    grpc_channel_credentials *creds = grpc_ssl_credentials_create_ex(now.ca, &own, NULL, NULL);
    cluster_certs_free(&now);
    return creds;
}

/* gRPC calls it before each handshake, under a lock of the listener's. */
static grpc_ssl_certificate_config_reload_status
on_handshake(void *arg, grpc_ssl_server_certificate_config **out)
{
    struct rpc_server_certs *s = arg;
    struct cluster_certs now;
    if (cluster_certs_now(s->cluster, &now))
        return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL; /* keeps what it has */
    const bool fresh = now.version != s->version;
    if (fresh) {
        grpc_ssl_pem_key_cert_pair own = {now.key, now.cert};
        *out = grpc_ssl_server_certificate_config_create(now.ca, &own, 1);
        s->version = now.version;
    }
    cluster_certs_free(&now);
    return fresh ? GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW
                 : GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
}

grpc_server_credentials *rpc_server_creds(const struct cluster *c, const char *address,
                                          struct rpc_server_certs *certs)
{
    if (!encrypts(c, address))
        return grpc_insecure_server_credentials_create();
    *certs = (struct rpc_server_certs){.cluster = c};
    grpc_ssl_server_credentials_options *o =
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, on_handshake, certs);
    return o ? grpc_ssl_server_credentials_create_with_options(o) : NULL;
}

bool rpc_from_unix(grpc_call *call)
{
    char *peer = grpc_call_get_peer(call);
    bool is = peer && !strncmp(peer, "unix:", 5);
    gpr_free(peer);
    return is;
}

bool rpc_from_member(grpc_call *call, const struct cluster *c)
{
    grpc_auth_context *ctx = grpc_call_auth_context(call);
    bool found = false;
    if (!ctx)
        return false;
    grpc_auth_property_iterator it =
        grpc_auth_context_find_properties_by_name(ctx, GRPC_X509_SAN_PROPERTY_NAME);
    for (const grpc_auth_property *p; !found && (p = grpc_auth_property_iterator_next(&it));)
        found = p->value_length == strlen(c->name) && !memcmp(p->value, c->name, p->value_length);
    grpc_auth_context_release(ctx);
    return found;
}
