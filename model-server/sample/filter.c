#include "model-server/sample/filter.h"
#include "model-server/backend/draw.h"
#include "model-server/backend/draw_math.h"
#include "model-server/sample/rows.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A bucket is 1/64 nat wide. Real rows put a few hundred of 128 000 tokens into the fullest one.
 * Tokens more than 32 nats below the best share the last. */
enum { BUCKETS = 2048, PER_NAT = 64 };

int filter_mem_init(struct filter_mem *x, uint32_t vocab, struct err *e)
{
    *x = (struct filter_mem){.vocab = vocab};
    x->id = malloc(vocab * sizeof(*x->id));
    x->w = malloc(vocab * sizeof(*x->w));
    x->key = malloc(vocab * sizeof(*x->key));
    x->raw = malloc(vocab * sizeof(*x->raw));
    x->sort = malloc(vocab * sizeof(*x->sort));
    x->swap = malloc(vocab * sizeof(*x->swap));
    if (x->id && x->w && x->key && x->raw && x->sort && x->swap)
        return 0;
    filter_mem_free(x);
    return err_nomem(e);
}

void filter_mem_free(struct filter_mem *x)
{
    free(x->id), free(x->w), free(x->key), free(x->raw), free(x->sort), free(x->swap);
    *x = (struct filter_mem){0};
}

/* ---------------------------------------------------------------- sorting what little is left */

static uint64_t entry(float key, size_t i) { return (uint64_t)draw_order(key) << 32 | (uint32_t)i; }

static void insertion_sort(uint64_t *v, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        uint64_t x = v[i];
        size_t j = i;
        for (; j && v[j - 1] >> 32 > x >> 32; j--)
            v[j] = v[j - 1];
        v[j] = x;
    }
}

/* Sorts by key, ascending and stable. The result is in v or in swap. */
static uint64_t *sort_entries(uint64_t *v, uint64_t *swap, size_t n)
{
    if (n <= 48)
        return insertion_sort(v, n), v;
    for (int shift = 32; shift < 64; shift += 8) {
        size_t at[257] = {0};
        for (size_t i = 0; i < n; i++)
            at[(v[i] >> shift & 255) + 1]++;
        /* all alike here */
        if (at[(v[0] >> shift & 255) + 1] == n)
            continue;
        for (int b = 0; b < 256; b++)
            at[b + 1] += at[b];
        for (size_t i = 0; i < n; i++)
            swap[at[v[i] >> shift & 255]++] = v[i];
        uint64_t *t = v;
        v = swap;
        swap = t;
    }
    return v;
}

/* ---------------------------------------------------------------- the cut */

static int bucket(float key, float min)
{
    float b = (key - min) * PER_NAT;
    return b < BUCKETS - 1 ? (int)b : BUCKETS - 1;
}

struct cut {
    float key;
    size_t index; /* of the last candidate that is kept, among those with this key */
};

/* Contribution of a candidate: its weight, or one. Integers, so that no sum depends on the
 * order. */
static uint64_t units(const float *w, size_t i) { return w ? draw_units(w[i]) : 1; }

/* Visits candidates by ascending key, equal ones from the highest index down, until the sum of
 * their weights reaches the share p of all; without weights, until there are p of them. That
 * candidate is the last one kept. (The order of equals matters because transformers' stable
 * ascending sort keeps the highest.) */
static struct cut find_cut(struct filter_mem *x, const float *key, const float *w, size_t n,
                           double p)
{
    uint64_t mass[BUCKETS] = {0}, total = 0, sum = 0;
    float min = INFINITY;
    for (size_t i = 0; i < n; i++)
        min = key[i] < min ? key[i] : min;
    for (size_t i = 0; i < n; i++)
        mass[bucket(key[i], min)] += units(w, i);
    for (int i = 0; i < BUCKETS; i++)
        total += mass[i];
    const uint64_t target = w ? draw_share(p, total) : (uint64_t)p;
    int b = 0;
    for (; b < BUCKETS - 1 && sum + mass[b] < target; b++)
        sum += mass[b];

    size_t m = 0, last = 0;
    for (size_t i = n; i-- > 0;)
        if (bucket(key[i], min) == b)
            x->sort[m++] = entry(key[i], i);
    if (!m) /* fewer than p */
        return (struct cut){INFINITY, 0};
    const uint64_t *v = sort_entries(x->sort, x->swap, m);
    for (; last < m - 1; last++) {
        sum += units(w, (uint32_t)v[last]);
        if (sum >= target)
            break;
    }
    size_t i = (uint32_t)v[last];
    return (struct cut){key[i], i};
}

/* Keeps candidates up to the cutoff, and never a masked one. */
static void keep(struct cands *c, struct filter_mem *x, const float *key, struct cut cut, bool ties)
{
    size_t m = 0;
    double sum = 0;
    for (size_t i = 0; i < c->n; i++) {
        bool in = key[i] < cut.key || (key[i] == cut.key && (ties || i >= cut.index));
        if (!in || c->s[i] == -INFINITY)
            continue;
        x->id[m] = cand_id(c, i);
        c->s[m] = c->s[i];
        if (c->w)
            sum += c->w[m] = c->w[i];
        m++;
    }
    c->id = x->id;
    c->n = m;
    c->sum = sum;
}

static const float *minus_scores(const struct cands *c, struct filter_mem *x)
{
    for (size_t i = 0; i < c->n; i++)
        x->key[i] = -c->s[i];
    return x->key;
}

/* ---------------------------------------------------------------- the filters */

int cands_begin(struct cands *c, float *s, size_t vocab, struct err *e)
{
    *c = (struct cands){.s = s, .n = vocab, .max = row_max(s, vocab)};
    if (c->max == -INFINITY)
        return err_set(e, ERR_GENERATION, "%s", draw_failure(DRAW_NOTHING_ALLOWED));
    if (!isfinite(c->max))
        return err_set(e, ERR_GENERATION, "%s", draw_failure(DRAW_NOT_FINITE));
    return 0;
}

void cands_weigh(struct cands *c, struct filter_mem *x)
{
    c->w = x->w;
    c->sum = row_exp(c->s, c->max, c->w, c->n);
}

void cut_top_k(struct cands *c, struct filter_mem *x, uint32_t k)
{
    if (k >= c->n)
        return;
    const float *key = minus_scores(c, x);
    keep(c, x, key, find_cut(x, key, NULL, c->n, k), true);
}

void cut_top_p(struct cands *c, struct filter_mem *x, double p)
{
    const float *key = minus_scores(c, x);
    keep(c, x, key, find_cut(x, key, c->w, c->n, p), false);
}

void cut_min_p(struct cands *c, struct filter_mem *x, float p)
{
    for (size_t i = 0; i < c->n; i++)
        x->key[i] = -c->w[i];
    keep(c, x, x->key, (struct cut){-p, 0}, true);
}

/* |log p + entropy| = |x - mean of x|, where x are the logarithms of the weights: the
 * normalisation cancels. */
void cut_typical(struct cands *c, struct filter_mem *x, double p)
{
    uint64_t sum = 0, logs = 0;
    for (size_t i = 0; i < c->n; i++) {
        sum += draw_units(c->w[i]);
        logs += draw_units_of_log(c->w[i], c->s[i] - c->max);
    }
    double mean = (double)logs / (double)sum;
    for (size_t i = 0; i < c->n; i++)
        x->key[i] = draw_atypical(c->s[i] - c->max, mean);
    keep(c, x, x->key, find_cut(x, x->key, c->w, c->n, p), true);
}

void cut_top_n_sigma(struct cands *c, struct filter_mem *x, float n)
{
    double sum = 0, squares = 0;
    size_t m = 0;
    for (size_t i = 0; i < c->n; i++)
        if (c->s[i] != -INFINITY) {
            double d = (double)c->s[i] - c->max; /* small numbers: no cancellation */
            sum += d;
            squares += d * d;
            m++;
        }
    double mean = sum / (double)m, variance = squares / (double)m - mean * mean;
    double reach = variance > 0 ? n * sqrt(variance) : 0;
    keep(c, x, minus_scores(c, x), (struct cut){(float)(reach - c->max), 0}, true);
}

void cut_xtc(struct cands *c, struct filter_mem *x, float threshold)
{
    uint64_t total = 0, least = UINT64_MAX;
    size_t above = 0, last = 0;
    for (size_t i = 0; i < c->n; i++)
        total += draw_units(c->w[i]);
    const uint64_t bar = draw_share(threshold, total);
    for (size_t i = 0; i < c->n; i++) {
        uint64_t u = draw_units(c->w[i]);
        if (u < bar)
            continue;
        above++;
        if (u <= least)
            least = u, last = i;
    }
    if (above < 2)
        return;
    for (size_t i = 0; i < c->n; i++)
        x->key[i] = draw_units(c->w[i]) >= bar && i != last;
    keep(c, x, x->key, (struct cut){0, 0}, true);
}

size_t cands_best(const struct cands *c, struct filter_mem *x, size_t n, uint32_t *out)
{
    size_t m = 0, k = 0;
    if (!n)
        return 0;
    const float *key = minus_scores(c, x);
    float last = n < c->n ? find_cut(x, key, NULL, c->n, (double)n).key : INFINITY;
    for (size_t i = 0; i < c->n; i++)
        if (key[i] <= last && c->s[i] != -INFINITY)
            x->sort[m++] = entry(key[i], i);
    const uint64_t *v = sort_entries(x->sort, x->swap, m);
    for (; k < m && k < n; k++)
        out[k] = (uint32_t)v[k];
    return k;
}
