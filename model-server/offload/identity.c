#include "model-server/offload/identity.h"
#include <gnutls/crypto.h>

enum { FORMAT = 2 };

static int digest(const void *a, size_t n_a, const void *b, size_t n_b, uint8_t out[KV_IDENTITY],
                  struct err *e)
{
    gnutls_hash_hd_t h;
    if (gnutls_hash_init(&h, GNUTLS_DIG_SHA256) < 0)
        return err_nomem(e);
    gnutls_hash(h, a, n_a);
    gnutls_hash(h, b, n_b);
    gnutls_hash_deinit(h, out);
    return 0;
}

int kv_identity_of_layout(const struct model_identity *model, struct kv_layout *l, struct err *e)
{
    const uint64_t numbers[] = {FORMAT, l->bytes[0], l->bytes[1], l->bytes[2]};
    if (digest(model->content, KV_IDENTITY, numbers, sizeof(numbers), l->identity, e))
        return -1;
    return digest(l->identity, KV_IDENTITY, model->times, KV_IDENTITY, l->folder, e);
}
