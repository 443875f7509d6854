/* Most of a piece's cuts have a part that is no piece. A filter of hashes, which stays in a near
 * cache, drops those; what passes is looked up. Hashes of all parts of a piece come of one pass. */
#include "common/tokenizer/scored.h"
#include "common/tokenizer/vocab.h"
#include "common/utf8.h"
#include <stdlib.h>
#include <string.h>

/* bytes of a piece: longer ones are tried nowhere, and cost the square */
enum { PIECE_MAX = 256, PENDING = 64 };
#define HASH_BASE 0x9E3779B97F4A7C15u /* odd: each byte counts in all later hashes */

struct cutter {
    const struct scored_piece *v;
    const struct vocab *ids;
    uint64_t *filter; /* bits */
    unsigned shift;
    uint64_t power[PIECE_MAX + 1]; /* of HASH_BASE */
    struct scored_merge pending[PENDING];
    size_t n_pending;
    struct buf list; /* of scored_merge */
};

/* ---------------------------------------------------------------- hashes */

static uint64_t next_hash(uint64_t hash, char c) { return hash * HASH_BASE + (unsigned char)c + 1; }

/* hash[i]: that of the first i bytes. */
static void hash_prefixes(const char *s, size_t n, uint64_t *hash)
{
    hash[0] = 0;
    for (size_t i = 0; i < n; i++)
        hash[i + 1] = next_hash(hash[i], s[i]);
}

static uint64_t bit_of(const struct cutter *c, uint64_t hash)
{
    hash ^= hash >> 32;
    return (hash * HASH_BASE) >> c->shift;
}

static bool may_be_piece(const struct cutter *c, uint64_t hash)
{
    const uint64_t bit = bit_of(c, hash);
    return c->filter[bit / 64] >> bit % 64 & 1;
}

/* A bit for each piece, in 16 times as many. */
static int make_filter(struct cutter *c, uint32_t n, struct err *e)
{
    unsigned bits = 10;
    while (bits < 36 && (uint64_t)1 << bits < (uint64_t)n * 16)
        bits++;
    c->shift = 64 - bits;
    if (!(c->filter = calloc((size_t)1 << (bits - 6), sizeof(*c->filter))))
        return err_nomem(e);
    c->power[0] = 1;
    for (size_t i = 0; i < PIECE_MAX; i++)
        c->power[i + 1] = c->power[i] * HASH_BASE;
    return 0;
}

static bool takes_part(const struct scored_piece *s) { return s->n && s->n <= PIECE_MAX; }

static void fill_filter(struct cutter *c, uint32_t n)
{
    for (uint32_t id = 0; id < n; id++) {
        const struct scored_piece *s = &c->v[id];
        uint64_t hash = 0;
        if (!takes_part(s))
            continue;
        for (size_t i = 0; i < s->n; i++)
            hash = next_hash(hash, s->p[i]);
        const uint64_t bit = bit_of(c, hash);
        c->filter[bit / 64] |= (uint64_t)1 << bit % 64;
    }
}

/* The pieces that can be part of a merge. */
static int index_pieces(struct vocab *ids, const struct scored_piece *v, uint32_t n, struct err *e)
{
    size_t bytes = 0;
    int rc = 0;
    for (uint32_t id = 0; id < n; id++)
        bytes += v[id].n;
    if (vocab_reserve(ids, n, bytes) != 0)
        return err_nomem(e);
    for (uint32_t id = 0; id < n && rc == 0; id++)
        if (takes_part(&v[id]) && vocab_find(ids, v[id].p, v[id].n) == NO_ID)
            rc = vocab_put(ids, v[id].p, v[id].n, id, e);
    return rc;
}

/* ---------------------------------------------------------------- cuts */

static bool is_piece(const struct cutter *c, uint32_t id)
{
    return id != NO_ID && takes_part(&c->v[id]);
}

/* Looks up the parts of what is pending, and lists the merges among them. */
static void list_pending(struct cutter *c)
{
    struct vocab_key part[2 * PENDING];
    uint32_t found[2 * PENDING];
    for (size_t i = 0; i < c->n_pending; i++) {
        const struct scored_merge *m = &c->pending[i];
        const struct scored_piece *s = &c->v[m->id];
        part[2 * i] = (struct vocab_key){s->p, m->cut};
        part[2 * i + 1] = (struct vocab_key){s->p + m->cut, s->n - m->cut};
    }
    vocab_find_all(c->ids, part, 2 * c->n_pending, found);
    for (size_t i = 0; i < c->n_pending; i++) {
        struct scored_merge *m = &c->pending[i];
        m->left = found[2 * i];
        m->right = found[2 * i + 1];
        if (is_piece(c, m->left) && is_piece(c, m->right))
            buf_add(&c->list, m, sizeof(*m));
    }
    c->n_pending = 0;
}

/* From the longest left part to the shortest, which is mostly the order of the ranks. */
static void cut_piece(struct cutter *c, uint32_t id)
{
    const struct scored_piece *s = &c->v[id];
    uint64_t hash[PIECE_MAX + 1];
    uint16_t begin[PIECE_MAX]; /* of each character but the first */
    size_t cuts = 0;
    for (size_t at = utf8_valid_len(s->p, s->n); at < s->n;
         at += utf8_valid_len(s->p + at, s->n - at))
        begin[cuts++] = (uint16_t)at;
    hash_prefixes(s->p, s->n, hash);
    for (size_t i = cuts; i-- > 0;) {
        const size_t at = begin[i];
        if (!may_be_piece(c, hash[at]) ||
            !may_be_piece(c, hash[s->n] - hash[at] * c->power[s->n - at]))
            continue;
        c->pending[c->n_pending++] = (struct scored_merge){.id = id,
                                                           .left_chars = (uint32_t)(i + 1),
                                                           .right_chars = (uint32_t)(cuts - i),
                                                           .cut = (uint32_t)at};
        if (c->n_pending == PENDING)
            list_pending(c);
    }
}

/* ---------------------------------------------------------------- order */

/* Ascending keys are descending scores, and ascending ids among equals. */
static uint64_t order_key(float score, uint32_t id)
{
    uint32_t bits;
    score += 0.0F; /* -0 and 0 are equal */
    memcpy(&bits, &score, sizeof(bits));
    bits = bits >> 31 ? bits : ~bits & 0x7FFFFFFF;
    return (uint64_t)bits << 32 | id;
}

static int by_key(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Of merges whose pieces have one score. */
static int before(const void *a, const void *b)
{
    const struct scored_merge *x = a, *y = b;
    if (x->left_chars != y->left_chars)
        return x->left_chars > y->left_chars ? -1 : 1;
    if (x->right_chars != y->right_chars)
        return x->right_chars > y->right_chars ? -1 : 1;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    if (x->left != y->left)
        return x->left < y->left ? -1 : 1;
    return (x->right > y->right) - (x->right < y->right);
}

/* Files have most pieces in order already. */
static void sort(void *list, size_t n, size_t size, int (*compare)(const void *, const void *))
{
    const char *at = list;
    for (size_t i = 1; i < n; i++, at += size)
        if (compare(at, at + size) > 0) {
            qsort(list, n, size, compare);
            return;
        }
}

static uint32_t score_of_key(uint64_t key) { return (uint32_t)(key >> 32); }

/* Cuts the pieces of keys [from, end), which have one score, and sorts their merges. */
static void cut_equals(struct cutter *c, const uint64_t *key, size_t from, size_t end)
{
    if (end - from > 1)
        list_pending(c); /* of other scores */
    const size_t begin = c->list.len;
    for (size_t i = from; i < end; i++)
        cut_piece(c, (uint32_t)key[i]);
    if (end - from == 1)
        return;
    list_pending(c);
    if (c->list.len > begin)
        sort(c->list.p + begin, (c->list.len - begin) / sizeof(struct scored_merge),
             sizeof(struct scored_merge), before);
}

static int cut_all(struct cutter *c, uint32_t n, struct err *e)
{
    uint64_t *key = malloc((n + (size_t)1) * sizeof(*key));
    size_t keys = 0;
    if (!key)
        return err_nomem(e);
    for (uint32_t id = 0; id < n; id++)
        if (takes_part(&c->v[id]))
            key[keys++] = order_key(c->v[id].score, id);
    sort(key, keys, sizeof(*key), by_key);
    for (size_t from = 0, end; from < keys; from = end) {
        for (end = from + 1; end < keys && score_of_key(key[end]) == score_of_key(key[from]);)
            end++;
        cut_equals(c, key, from, end);
    }
    list_pending(c);
    free(key);
    return c->list.oom ? err_nomem(e) : 0;
}

/* ---------------------------------------------------------------- all merges */

int scored_merges(const struct scored_piece *v, uint32_t n, const struct vocab *ids,
                  struct scored_merge **out, size_t *count, struct err *e)
{
    struct vocab own = {0};
    struct cutter c = {.v = v, .ids = ids ? ids : &own, .list = BUF_INIT};
    int rc = make_filter(&c, n, e);
    if (rc == 0 && !ids)
        rc = index_pieces(&own, v, n, e);
    if (rc == 0) {
        fill_filter(&c, n);
        rc = cut_all(&c, n, e);
    }
    *count = c.list.len / sizeof(**out);
    *out = rc == 0 ? (struct scored_merge *)(void *)buf_take(&c.list) : NULL;
    if (rc == 0 && !*out)
        rc = err_nomem(e);
    buf_free(&c.list);
    vocab_free(&own);
    free(c.filter);
    return rc;
}

int scored_merges_json(const struct scored_piece *v, uint32_t n, struct buf *b, struct err *e)
{
    struct scored_merge *m = NULL;
    size_t count = 0;
    int rc = scored_merges(v, n, NULL, &m, &count, e);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const struct scored_piece *s = &v[m[i].id];
        buf_str(b, i ? ",[" : "[");
        buf_json_str(b, s->p, m[i].cut);
        buf_ch(b, ',');
        buf_json_str(b, s->p + m[i].cut, s->n - m[i].cut);
        buf_ch(b, ']');
    }
    free(m);
    return rc;
}
