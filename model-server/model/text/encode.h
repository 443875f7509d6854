/* encode.h - converts texts to hidden states, and those to vectors or scores, many at once.
 *
 * All texts of a step pass through the layers as one ragged batch, whole. Nothing is kept between
 * steps, so the cache holds one layer's keys and values at a time. A text's result does not
 * depend on its batch. Every rank gets the same calls; only the first rank needs the result. One
 * thread. */
#ifndef MODEL_SERVER_MODEL_ENCODE_H
#define MODEL_SERVER_MODEL_ENCODE_H
#include "model-server/model/decoder.h"
#include "model-server/model/model.h"
#include "model-server/model/text/encode_source.h"
#include "model-server/model/text/text_head.h"

struct encoder {
    struct decoder *d;
    struct text_head head;
    struct encode_source source; /* of classifiers with two stacks */
    enum kv_dtype kv_dtype;
    uint32_t n_blocks; /* of d->kv */
    /* Working memory, which grows to the largest pass. */
    uint32_t cap_tokens, cap_texts;
    uint32_t *ids, *pos, *slots, *blocks, *out_rows;
    struct span *spans;
    /* Only passes with images need them: [cap_images], the entries of struct ragged. */
    const float **given;
    uint32_t (*axes)[3];
    struct mutual *mutual;
    uint32_t cap_images;
    float *rows, *work, *logits; /* logits: of text_head.sparse */
    size_t cap_rows;             /* floats */
};

void encoder_free(struct encoder *c);
int encoder_reserve(struct encoder *c, uint32_t max_tokens, uint32_t max_texts, struct err *e);
/* ERR_VALIDATION for wrong text.rows, or if the model has no such text.attended. */
int encoder_check(const struct encoder *c, const struct model_text *t, struct err *e);
/* See model_encode(). */
int encoder_run(struct encoder *c, const struct model_text *texts, uint32_t n, bool all, float *out,
                struct err *e);
#endif
