#include "model-server/sample/repeats.h"
#include <assert.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

struct repeats {
    struct detok detok;
    struct buf text; /* the end of the text so far: one byte less than the longest breaker */
    char **breakers;
    size_t n_breakers, longest;
    uint32_t *ids, *match; /* [most]; match: see match_ends() */
    bool *breaks;          /* [most] */
    uint32_t n, most;
};

static int copy_breakers(struct repeats *r, char *const *v, size_t n)
{
    r->breakers = calloc(n + 1, sizeof(*r->breakers));
    for (size_t i = 0; r->breakers && i < n; i++) {
        size_t len = strlen(v[i]);
        if (!len)
            continue;
        if (!(r->breakers[r->n_breakers] = strdup(v[i])))
            return -1;
        r->n_breakers++;
        r->longest = len > r->longest ? len : r->longest;
    }
    return r->breakers ? 0 : -1;
}

struct repeats *repeats_new(const struct tokenizer *tok, char *const *breakers, size_t n_breakers,
                            uint32_t most, struct err *e)
{
    struct repeats *r = calloc(1, sizeof(*r));
    if (!r)
        return err_nomem(e), NULL;
    r->most = most;
    r->ids = malloc(most * sizeof(*r->ids));
    r->match = malloc(most * sizeof(*r->match));
    r->breaks = malloc(most * sizeof(*r->breaks));
    if (!r->ids || !r->match || !r->breaks || copy_breakers(r, breakers, n_breakers) ||
        detok_init(&r->detok, tok, NULL, 0, false)) {
        repeats_free(r);
        return err_nomem(e), NULL;
    }
    return r;
}

void repeats_free(struct repeats *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n_breakers; i++)
        free(r->breakers[i]);
    free(r->breakers);
    free(r->ids), free(r->match), free(r->breaks);
    buf_free(&r->text);
    detok_free(&r->detok);
    free(r);
}

/* True if a breaker ends after the first `old` bytes of the text. */
static bool breaker_ends(const struct repeats *r, size_t old)
{
    for (size_t i = 0; i < r->n_breakers; i++) {
        size_t len = strlen(r->breakers[i]), from = old >= len ? old - (len - 1) : 0;
        if (r->text.len > from && memmem(r->text.p + from, r->text.len - from, r->breakers[i], len))
            return true;
    }
    return false;
}

int repeats_push(struct repeats *r, uint32_t id, struct err *e)
{
    assert(r->n < r->most);
    bool found = false;
    if (r->n_breakers) {
        const size_t old = r->text.len, keep = r->longest - 1;
        detok_push(&r->detok, id, &r->text);
        if (r->text.oom)
            return err_nomem(e);
        found = breaker_ends(r, old);
        if (r->text.len > keep) {
            memmove(r->text.p, r->text.p + (r->text.len - keep), keep);
            r->text.len = keep;
        }
    }
    r->ids[r->n] = id;
    r->breaks[r->n++] = found;
    return 0;
}

static uint32_t back(const struct repeats *r, uint32_t k) { return r->ids[r->n - 1 - k]; }

/* match[k]: number of tokens, ending k before the last one, that equal the end of the context. It
 * is the Z function of the reversed context: linear, since `right` only grows. */
static void match_ends(struct repeats *r, uint32_t n)
{
    uint32_t left = 0, right = 0;
    for (uint32_t k = 1; k < n; k++) {
        uint32_t len = 0;
        if (k < right)
            len = r->match[k - left] < right - k ? r->match[k - left] : right - k;
        while (k + len < n && back(r, len) == back(r, k + len))
            len++;
        r->match[k] = len;
        if (k + len > right)
            left = k, right = k + len;
    }
}

/* Only multiplications: the same on every machine. Finite, so that no token is masked. */
static float penalty(const struct dry *d, uint32_t length)
{
    double v = d->multiplier;
    for (uint32_t i = (uint32_t)d->allowed_length; i < length && v < FLT_MAX; i++)
        v *= d->base;
    return v < FLT_MAX / 4 ? (float)v : FLT_MAX / 4;
}

void repeats_penalise(struct repeats *r, const struct dry *d, float *row, size_t vocab, float *work)
{
    const uint32_t n = d->last_n >= 0 && (uint32_t)d->last_n < r->n ? (uint32_t)d->last_n : r->n;
    const uint32_t least = (uint32_t)d->allowed_length;
    uint32_t limit = 0; /* tokens after the last break */
    assert(d->allowed_length > 0);
    while (limit < n && !r->breaks[r->n - 1 - limit])
        limit++;
    if (limit < least)
        return;
    match_ends(r, n);
    for (uint32_t k = 1; k < n; k++)
        if (back(r, k - 1) < vocab)
            work[back(r, k - 1)] = 0;
    for (uint32_t k = 1; k < n; k++) {
        const uint32_t len = r->match[k] < limit ? r->match[k] : limit, id = back(r, k - 1);
        if (len >= least && id < vocab && !r->breaks[r->n - k] && (float)len > work[id])
            work[id] = (float)len;
    }
    for (uint32_t k = 1; k < n; k++) {
        const uint32_t id = back(r, k - 1);
        if (id >= vocab || work[id] == 0)
            continue;
        row[id] -= penalty(d, (uint32_t)work[id]);
        work[id] = 0;
    }
}
