/* embed.h - the engine of models that do not generate: batches of texts in one call, nothing kept
 * between calls. One thread. */
#ifndef MODEL_SERVER_ENGINE_EMBED_H
#define MODEL_SERVER_ENGINE_EMBED_H
#include "model-server/engine/engine.h"

/* model_encode() on every rank alike; *out [floats] is rank 0's, to be freed, NULL on the others
 * (and where nothing is wanted). ERR_VALIDATION for a model that generates, and for texts that it
 * cannot take: nothing was computed on any rank. */
int engine_embed(struct engine *g, const struct model_text *texts, uint32_t n, bool all,
                 float **out, size_t *floats, struct err *e);
/* Warm-up of such a model: memory for w->max_prefill_tokens, a short trial; the limits that the
 * router asks for. */
int engine_embed_warmup(struct engine *g, struct warmup *w, struct err *e);
#endif
