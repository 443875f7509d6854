/* identity.h - what the bits of a KV cache depend on, as a SHA-256. Two caches with one identity
 * may exchange blocks. */
#ifndef MODEL_SERVER_OFFLOAD_IDENTITY_H
#define MODEL_SERVER_OFFLOAD_IDENTITY_H
#include "common/err.h"
#include "common/model_identity.h"
#include "model-server/offload/record.h"

_Static_assert((int)KV_IDENTITY == (int)IDENTITY_BYTES, "one is made of the other");

/* That of a model with the layout's sizes, for one rank: l->identity, and l->folder with the
 * times. */
int kv_identity_of_layout(const struct model_identity *model, struct kv_layout *l, struct err *e);
#endif
