/* embed.h - the engine of models that do not generate: one batch of texts per call, no state
 * between calls. One thread. */
#ifndef MODEL_SERVER_ENGINE_EMBED_H
#define MODEL_SERVER_ENGINE_EMBED_H
#include "model-server/engine/engine.h"

/* Runs model_encode() on every rank. names [n]: of the texts' adapters, NULL or "" for the base
 * model; or NULL. The numbers of the texts' adapters are set and cleared. *out [floats] is set on
 * rank 0, and the caller frees it; NULL on other ranks, and if no vector is requested.
 * ERR_VALIDATION, before any rank computes: the model generates, or does not support the texts. */
int engine_embed(struct engine *g, struct model_text *texts, const char *const *names, uint32_t n,
                 bool all, float **out, size_t *floats, struct err *e);
/* Warm-up of such a model: allocates memory for w->max_prefill_tokens, runs a short trial, and
 * returns the limits for the router. */
int engine_embed_warmup(struct engine *g, struct warmup *w, struct err *e);
#endif
