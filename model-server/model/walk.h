/* walk.h - a decoder of which one layer at a time is in memory: for work that looks at the
 * activations of a whole model in the memory of a layer.
 *
 * A text is a sequence of its own, of at most `longest` tokens, which goes through the model from
 * its beginning: walk_embed(), then each layer in order, then walk_head(). Its rows of the residual
 * stream [n][hidden] are in the caller's memory between the layers. Exact arithmetic; weights in
 * fp32. One rank, one thread. */
#ifndef MODEL_SERVER_MODEL_WALK_H
#define MODEL_SERVER_MODEL_WALK_H
#include "model-server/model/decoder.h"
#include "model-server/model/quant/stored.h"

struct walk;

/* `dir`: a folder or a GGUF file. ERR_VALIDATION: it is no generating model, or one whose layers
 * need more than the rows (embeddings of each layer; keys of another layer). NULL with `e`. */
struct walk *walk_open(const char *dir, uint32_t longest, const struct backend_ops *ops,
                       struct device *dev, struct err *e);
void walk_close(struct walk *w); /* NULL is fine */

const struct decoder_spec *walk_spec(const struct walk *w);
const struct arch *walk_arch(const struct walk *w);
const char *walk_type(const struct walk *w); /* model_type of config.json */
const struct checkpoint *walk_checkpoint(const struct walk *w);
const struct stored *walk_stored(const struct walk *w);
/* Of layers that are loaded from now on; see struct pack_watch. */
void walk_watch(struct walk *w, const struct pack_watch *watch);

int walk_embed(struct walk *w, const uint32_t *ids, uint32_t n, float *x, struct err *e);
/* Weights of a layer come and go. */
int walk_load(struct walk *w, uint32_t layer, struct err *e);
void walk_drop(struct walk *w, uint32_t layer);
/* x [n][hidden] through a loaded layer, in place. */
int walk_layer(struct walk *w, uint32_t layer, float *x, uint32_t n, struct err *e);
/* Logits [n][vocab] of rows that have been through all layers. */
int walk_head(struct walk *w, const float *x, uint32_t n, float *logits, struct err *e);
#endif
