#include "model-server/model/text/encode_source.h"
#include <stdlib.h>

static uint32_t blocks_of(uint32_t tokens)
{
    return (tokens + MODEL_CROSS_BLOCK - 1) / MODEL_CROSS_BLOCK;
}

int encode_source_load(struct encode_source *x, const char *dir, const struct decoder *d,
                       struct err *e)
{
    *x = (struct encode_source){0};
    return text_encoder_load(dir, d, &x->encoder, e);
}

static void free_memory(struct encode_source *x)
{
    free(x->blocks), free(x->jobs), free(x->sees), free(x->rows);
    x->blocks = NULL;
    x->jobs = NULL;
    x->sees = NULL;
    x->rows = NULL;
    x->cap_texts = x->cap_tokens = 0;
}

void encode_source_free(struct encode_source *x)
{
    free_memory(x);
    text_encoder_free(x->encoder);
    x->encoder = NULL;
}

/* Each text begins a new block. */
static int reserve(struct encode_source *x, struct decoder *d, uint32_t tokens, uint32_t texts,
                   enum kv_dtype dtype, struct err *e)
{
    if (tokens <= x->cap_tokens && texts <= x->cap_texts)
        return 0;
    tokens = tokens > x->cap_tokens ? tokens : x->cap_tokens;
    texts = texts > x->cap_texts ? texts : x->cap_texts;
    const uint32_t blocks = blocks_of(tokens) + texts;
    free_memory(x);
    x->blocks = malloc(blocks * sizeof(*x->blocks));
    x->jobs = malloc(texts * sizeof(*x->jobs));
    x->sees = malloc(tokens * sizeof(*x->sees));
    x->rows = malloc((size_t)tokens * d->spec.hidden * sizeof(*x->rows));
    if (!x->blocks || !x->jobs || !x->sees || !x->rows)
        return err_nomem(e);
    for (uint32_t i = 0; i < blocks; i++)
        x->blocks[i] = i;
    if (decoder_cross_resize(d, blocks, dtype, e))
        return -1;
    x->cap_texts = texts;
    x->cap_tokens = tokens;
    return 0;
}

int encode_source_run(struct encode_source *x, struct decoder *d, const struct model_text *texts,
                      uint32_t n, enum kv_dtype dtype, struct err *e)
{
    uint32_t tokens = 0, block = 0;
    uint64_t done;
    for (uint32_t i = 0; i < n; i++)
        tokens += texts[i].n;
    if (reserve(x, d, tokens, n, dtype, e))
        return -1;
    float *row = x->rows;
    for (uint32_t i = 0; i < n; row += (size_t)texts[i++].n * d->spec.hidden)
        x->jobs[i] = (struct text_job){.ids = texts[i].ids, .n = texts[i].n, .out = row};
    if (text_encoder_begin(x->encoder, x->jobs, n, e))
        return -1;
    while (text_encoder_busy(x->encoder))
        if (text_encoder_go_on(x->encoder, UINT64_MAX, &done, e))
            return -1;
    for (uint32_t i = 0; i < n; block += blocks_of(texts[i++].n))
        if (decoder_cross_store(d, x->jobs[i].out, x->blocks + block, 0, texts[i].n, e))
            return -1;
    return 0;
}

void encode_source_show(const struct encode_source *x, const struct model_text *texts, uint32_t n,
                        struct ragged *b, struct span *spans)
{
    uint32_t at = 0, block = 0;
    for (uint32_t i = 0; i < n; block += blocks_of(texts[i++].n)) {
        spans[i].shown = x->blocks + block;
        for (uint32_t k = 0; k < texts[i].n; k++)
            x->sees[at++] = (struct mutual){0, texts[i].n};
    }
    b->sees = x->sees;
}
