/* embed.h - the engine of models that do not generate: one batch of texts per call, no state
 * between calls. One thread. */
#ifndef MODEL_SERVER_ENGINE_EMBED_H
#define MODEL_SERVER_ENGINE_EMBED_H
#include "model-server/engine/engine.h"

/* What a text has beside its ids. */
struct text_beside {
    const char *adapter;            /* its name; NULL or "": the base model */
    const struct media_spec *media; /* [n_media] its images, in order */
    uint32_t n_media;
};
/* Runs model_encode() on every rank. beside: [n], or NULL. The numbers of the texts' adapters are
 * set and cleared; what they have of images is set for the call. *out [floats] is set on
 * rank 0, and the caller frees it; NULL on other ranks, and if no vector is requested.
 * ERR_VALIDATION, before any rank computes: the model generates, or does not support the texts
 * or their images. */
int engine_embed(struct engine *g, struct model_text *texts, const struct text_beside *beside,
                 uint32_t n, bool all, float **out, size_t *floats, struct err *e);
/* Warm-up of such a model: allocates memory for w->max_prefill_tokens, runs a short trial, and
 * returns the limits for the router. */
int engine_embed_warmup(struct engine *g, struct warmup *w, struct err *e);
#endif
