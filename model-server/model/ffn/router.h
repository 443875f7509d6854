/* router.h - a router that is an MLP of three matrices, of which the last makes the experts'
 * logits (moe_spec.router_width). What the first one makes grows from layer to layer: the sum of
 * the layer before, times a vector, is added to it. Private to ffn/. */
#ifndef MODEL_SERVER_MODEL_FFN_ROUTER_H
#define MODEL_SERVER_MODEL_FFN_ROUTER_H
#include "model-server/model/decoder.h"
#include "model-server/model/loader/loader.h"

struct router;
/* NULL after an error, which the loader records. */
struct router *router_load(struct loader *l, int layer);
void router_free(struct decoder *d, struct router *r); /* NULL is fine */
/* Floats of work memory for each token. */
uint32_t router_work(const struct decoder *d);
/* The input of the last matrix, [tokens][router_width] in the step's work memory. In and out:
 * scratch.carried has the sum of the layer before, then that of this layer. */
const float *router_run(struct decoder *d, const struct router *r, struct sub_step *s);
#endif
