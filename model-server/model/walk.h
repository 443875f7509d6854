/* walk.h - a decoder with one layer at a time in memory: for work on the activations of a whole
 * model in the memory of a layer.
 *
 * A text is a separate sequence of at most `longest` tokens, which passes through the model from
 * its beginning: walk_embed(), then each layer in order, then walk_head(). Between the layers its
 * rows of the residual stream [n][hidden] are in the caller's memory. Exact arithmetic; weights
 * in fp32. One rank, one thread. */
#ifndef MODEL_SERVER_MODEL_WALK_H
#define MODEL_SERVER_MODEL_WALK_H
#include "model-server/model/checkpoint/quant/stored.h"
#include "model-server/model/decoder.h"

struct walk;

/* `dir`: a folder or a GGUF file. ERR_VALIDATION: the model does not generate, or its layers need
 * more than the rows (embeddings of each layer; keys of another layer). NULL with `e`. */
struct walk *walk_open(const char *dir, uint32_t longest, const struct backend_ops *ops,
                       struct device *dev, struct err *e);
void walk_close(struct walk *w); /* NULL is fine */

const struct decoder_spec *walk_spec(const struct walk *w);
const struct arch *walk_arch(const struct walk *w);
const char *walk_type(const struct walk *w); /* model_type of config.json */
const struct checkpoint *walk_checkpoint(const struct walk *w);
const struct stored *walk_stored(const struct walk *w);
/* For layers loaded from now on; see struct pack_watch. */
void walk_watch(struct walk *w, const struct pack_watch *watch);

/* x [n][hidden] = the embedded ids. */
int walk_embed(struct walk *w, const uint32_t *ids, uint32_t n, float *x, struct err *e);
/* Loads and frees the weights of a layer. */
int walk_load(struct walk *w, uint32_t layer, struct err *e);
void walk_drop(struct walk *w, uint32_t layer);
/* Passes x [n][hidden] through a loaded layer, in place. */
int walk_layer(struct walk *w, uint32_t layer, float *x, uint32_t n, struct err *e);
/* Logits [n][vocab] of rows after all layers. */
int walk_head(struct walk *w, const float *x, uint32_t n, float *logits, struct err *e);
#endif
