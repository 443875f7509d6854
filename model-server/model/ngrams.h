/* ngrams.h - embeddings of the n-grams that end at a token, added to the residual streams before
 * some layers (decoder_spec.ngrams, Qwen4-Exp).
 *
 * Hashes of the last ids select a row in each of several tables. A matrix makes a value of these
 * rows side by side, another one a key for each stream. The value times a sigmoid of the likeness
 * of key and stream is added to the stream. So is a dilated convolution of the norms of these. The
 * last ids and the inputs of the convolution are in a cell. Ranks divide the tables. One thread. */
#ifndef MODEL_SERVER_MODEL_NGRAMS_H
#define MODEL_SERVER_MODEL_NGRAMS_H
#include "model-server/model/decoder_impl.h"
#include "model-server/model/loader/loader.h"

struct ngrams_layer;

/* The layer's weights, of which decoder.mixer_width covers the work; the caller frees them. NULL
 * after an error, which the loader records. ERR_VALIDATION: fewer tables than ranks. */
struct ngrams_layer *decoder_ngrams_load(struct loader *l, uint32_t layer);
void decoder_ngrams_free(struct decoder *d, struct ngrams_layer *y); /* NULL is fine */
/* Enqueues the addition to the streams of all rows of the step. -1: a sum over ranks failed. */
int decoder_ngrams_add(struct decoder *d, const struct ngrams_layer *y,
                       const struct decoder_part *p, struct err *e);

/* Numbers that the tables follow from, for tests: the factor of the id `back` tokens before the
 * token, in the layer that is number `nth`, from 0, of those with tables; and the size of table
 * `k` of all these layers' tables. */
uint64_t ngram_factor(const struct decoder_spec *s, uint32_t nth, uint32_t back);
uint32_t ngram_size(const struct ngram_spec *s, uint32_t k);
#endif
