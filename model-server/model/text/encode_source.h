/* encode_source.h - the first stack of a classifier with two: its encoder reads a text, and the
 * decoder reads it again, beginning with its start token, and attends to the encoder's rows (BART,
 * T5). Rows of a pass are in a cache that each pass writes anew. A text's rows do not depend on its
 * batch. Every rank gets the same calls. One thread. */
#ifndef MODEL_SERVER_MODEL_ENCODE_SOURCE_H
#define MODEL_SERVER_MODEL_ENCODE_SOURCE_H
#include "model-server/model/decoder.h"
#include "model-server/model/model.h"
#include "model-server/model/text/text_encoder.h"

enum { SOURCE_PASS = 2048 }; /* most tokens of a pass, unless one text is longer */

struct encode_source {
    struct text_encoder *encoder; /* NULL: the model has one stack */
    /* Working memory, which grows to the largest pass. */
    uint32_t cap_texts, cap_tokens;
    uint32_t *blocks; /* of the decoder's cache of rows */
    struct text_job *jobs;
    struct mutual *sees;
    float *rows; /* [cap_tokens][hidden] */
};

/* Loads the encoder of the model in the folder `dir`, whose decoder `d` is loaded and outlives it.
 * Call encode_source_free() in either case. */
int encode_source_load(struct encode_source *x, const char *dir, const struct decoder *d,
                       struct err *e);
void encode_source_free(struct encode_source *x);
/* Computes the encoder's rows of n texts, and stores keys and values of them for all layers of `d`.
 * ERR_VALIDATION: an invalid token. */
int encode_source_run(struct encode_source *x, struct decoder *d, const struct model_text *texts,
                      uint32_t n, enum kv_dtype dtype, struct err *e);
/* Of a step of `d` with the same texts: every token of spans [n] attends to all rows of its text.
 * `b` and `spans` refer to memory of `x` until its next run. */
void encode_source_show(const struct encode_source *x, const struct model_text *texts, uint32_t n,
                        struct ragged *b, struct span *spans);
#endif
