/* trigram.h - embeddings that are made of three tokens': decoder_spec.embed_trigram (MobileBERT,
 * arXiv 2004.02984). */
#ifndef MODEL_SERVER_MODEL_TRIGRAM_H
#define MODEL_SERVER_MODEL_TRIGRAM_H
#include "common/err.h"
#include <stdint.h>

struct decoder; /* decoder.h */
struct loader;  /* loader.h */
struct ragged;  /* backend/ragged.h */

struct trigram;
/* Loads the matrix of W_EMBED_PROJECT and the table of positions and token types, both times the
 * factors of W_EMBED_NORM. NULL after an error, which the loader records; the caller frees it. */
struct trigram *trigram_load(struct loader *l);
void trigram_free(struct decoder *d, struct trigram *g); /* NULL is fine */
/* Enqueues x of the step `b` of whole texts, whose tokens' embeddings are in scratch.r. -1: an
 * error. */
int trigram_run(struct decoder *d, struct trigram *g, const struct ragged *b, struct err *e);
#endif
