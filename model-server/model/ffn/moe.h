/* moe.h - parts of ffn_moe, for sublayers that have its experts and others. Private to ffn/. */
#ifndef MODEL_SERVER_MODEL_FFN_MOE_H
#define MODEL_SERVER_MODEL_FFN_MOE_H
#include "model-server/model/layer.h"
#include "model-server/model/loader/loader.h"

/* What forward() of ffn_moe enqueues: `out` = this rank's share of the routed experts of `in`, for
 * the step's rows; then `out` += that of the shared expert, if there is one. `self` is what load()
 * of ffn_moe returned. Only the first may be given some of a step's rows: adapters change the
 * shared expert, and know all of them. -1: a sum over the ranks failed. */
int moe_run(struct decoder *d, const void *self, struct sub_step *s, struct err *e);
void moe_add_shared(struct decoder *d, const void *self, struct sub_step *s);
/* True if the file has the experts of pictures behind the others: moe_spec.sight_ffn. */
bool moe_sight_behind(const struct loader *l, int layer);
#endif
