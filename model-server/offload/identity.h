/* identity.h - a SHA-256 over everything that the bits of a KV cache depend on.
 *
 * Caches with equal identities may exchange blocks. */
#ifndef MODEL_SERVER_OFFLOAD_IDENTITY_H
#define MODEL_SERVER_OFFLOAD_IDENTITY_H
#include "common/err.h"
#include "common/model_identity.h"
#include "model-server/offload/record.h"

_Static_assert((int)KV_IDENTITY == (int)IDENTITY_BYTES, "one is made of the other");

/* Computes l->identity from the model and the sizes in `l`, for one rank, and l->folder, which also
 * covers the modification times of the weights. */
int kv_identity_of_layout(const struct model_identity *model, struct kv_layout *l, struct err *e);
#endif
