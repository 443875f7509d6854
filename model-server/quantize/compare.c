/* Compares two models over the held-out part of a text, each layer by layer. */
#include "model-server/quality/compare.h"
#include "model-server/quantize/quantize.h"
#include <stdlib.h>

enum { CHUNK = 64 };

struct side {
    struct walk *walk;
    float *x; /* [rows][hidden] */
};

static int through(struct side *s, const struct token_text *t, size_t rows, struct err *e)
{
    const struct decoder_spec *d = walk_spec(s->walk);
    const uint32_t *ids;
    uint32_t n;
    if (!(s->x = malloc((rows ? rows : 1) * d->hidden * sizeof(float))))
        return err_nomem(e);
    float *x = s->x;
    for (uint32_t i = 0; token_text_sequence(t, true, i, &ids, &n); i++, x += (size_t)n * d->hidden)
        if (walk_embed(s->walk, ids, n, x, e))
            return -1;
    for (uint32_t layer = 0; layer < d->n_layers; layer++) {
        x = s->x;
        if (walk_load(s->walk, layer, e))
            return -1;
        for (uint32_t i = 0; token_text_sequence(t, true, i, &ids, &n);
             i++, x += (size_t)n * d->hidden)
            if (walk_layer(s->walk, layer, x, n, e))
                return -1;
        walk_drop(s->walk, layer);
    }
    return 0;
}

static int heads(struct side s[2], const struct token_text *t, struct comparison *c, struct err *e)
{
    const struct decoder_spec *d = walk_spec(s[0].walk);
    const size_t vocab = d->vocab, hidden = d->hidden;
    float *logits[2] = {malloc(CHUNK * vocab * sizeof(float)),
                        malloc(CHUNK * vocab * sizeof(float))};
    const uint32_t *ids;
    size_t row = 0;
    uint32_t n;
    int rc = logits[0] && logits[1] ? 0 : err_nomem(e);
    for (uint32_t i = 0; rc == 0 && token_text_sequence(t, true, i, &ids, &n); i++, row += n)
        for (uint32_t at = 0; rc == 0 && at < n; at += CHUNK) {
            const uint32_t m = n - at < CHUNK ? n - at : CHUNK;
            for (int k = 0; rc == 0 && k < 2; k++)
                rc = walk_head(s[k].walk, s[k].x + (row + at) * hidden, m, logits[k], e);
            for (uint32_t j = 0; rc == 0 && j < m; j++)
                compare_row(c, logits[0] + j * vocab, logits[1] + j * vocab, d->vocab,
                            at + j + 1 < n ? (int64_t)ids[at + j + 1] : NO_NEXT);
        }
    free(logits[0]), free(logits[1]);
    return rc;
}

int quantize_compare(const char *model, const char *other, const struct token_text *t,
                     const struct backend_ops *ops, struct device *dev, struct comparison *c,
                     struct err *e)
{
    const char *dirs[] = {model, other};
    struct side s[2] = {{0}};
    const uint32_t *ids;
    size_t rows = 0;
    uint32_t n;
    int rc = 0;
    *c = (struct comparison){0};
    for (uint32_t i = 0; token_text_sequence(t, true, i, &ids, &n); i++)
        rows += n;
    for (int i = 0; i < 2 && rc == 0; i++) {
        s[i].walk = walk_open(dirs[i], t->context, ops, dev, e);
        rc = s[i].walk ? through(&s[i], t, rows, e) : -1;
    }
    if (rc == 0)
        rc = heads(s, t, c, e);
    for (int i = 0; i < 2; i++) {
        walk_close(s[i].walk);
        free(s[i].x);
    }
    return rc;
}
