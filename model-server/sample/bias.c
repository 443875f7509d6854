#include "model-server/sample/bias.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int check(const struct bias *b, size_t vocab, struct err *e)
{
    if (b->n > vocab)
        return err_set(e, ERR_VALIDATION, "%zu biases for a vocabulary of %zu", b->n, vocab);
    for (size_t i = 0; i < b->n; i++) {
        if (b->id[i] >= vocab)
            return err_set(e, ERR_VALIDATION, "bias for token %u, which is not in the vocabulary",
                           b->id[i]);
        if (!isfinite(b->value[i]))
            return err_set(e, ERR_VALIDATION, "the bias for token %u is not a number", b->id[i]);
    }
    return 0;
}

int bias_copy(struct bias *out, const struct bias *from, size_t vocab, struct err *e)
{
    *out = (struct bias){0};
    if (!from->n)
        return 0;
    if (check(from, vocab, e) != 0)
        return -1;
    out->id = malloc(from->n * sizeof(*out->id));
    out->value = malloc(from->n * sizeof(*out->value));
    if (!out->id || !out->value) {
        bias_free(out);
        return err_nomem(e);
    }
    memcpy(out->id, from->id, from->n * sizeof(*out->id));
    memcpy(out->value, from->value, from->n * sizeof(*out->value));
    out->n = from->n;
    return 0;
}

void bias_free(struct bias *b)
{
    free(b->id);
    free(b->value);
    *b = (struct bias){0};
}

void bias_apply(const struct bias *b, float *row)
{
    for (size_t i = 0; i < b->n; i++)
        row[b->id[i]] += b->value[i];
}
