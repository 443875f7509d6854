#include "common/tokenizer/bpe_impl.h"
#include "common/utf8.h"
#include <stdlib.h>
#include <string.h>

enum {
    WORD_BYTES = 22,
    WORD_IDS = 8, /* limits of a cache entry: 64 bytes each */
    WORDS = 1 << 15,
    SCAN_MAX = 64, /* up to this many symbols scanning is faster than the heap */
    NO_RANK = UINT32_MAX,
};

struct bpe_word {
    uint8_t bytes, n; /* bytes == 0: free */
    char text[WORD_BYTES];
    uint32_t id[WORD_IDS];
    uint8_t len[WORD_IDS];
};

struct sym {
    uint32_t id, len;
    uint32_t prev, next; /* NO_ID: none */
};

struct bpe_work {
    struct bpe_word word[WORDS];
    struct sym *sym;
    uint32_t n, cap;
    uint64_t *heap; /* rank << 32 | position of the left symbol */
    size_t heap_n, heap_cap;
};

struct bpe_work *bpe_work_new(void) { return calloc(1, sizeof(struct bpe_work)); }

void bpe_work_free(struct bpe_work *w)
{
    if (!w)
        return;
    free(w->sym);
    free(w->heap);
    free(w);
}

/* ---------------------------------------------------------------- first symbols */
static int add_sym(struct bpe_work *w, uint32_t id, uint32_t len)
{
    if (w->n == w->cap) {
        uint32_t cap = w->cap ? w->cap * 2 : 256;
        struct sym *s = realloc(w->sym, cap * sizeof *s);
        if (!s)
            return -1;
        w->sym = s;
        w->cap = cap;
    }
    w->sym[w->n++] = (struct sym){.id = id, .len = len};
    return 0;
}

static int init_bytes(const struct bpe *b, struct bpe_work *w, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t id = b->symbol[(unsigned char)s[i]];
        if (id != NO_ID && add_sym(w, id, 1) != 0)
            return -1;
    }
    return 0;
}

/* Looks up a character with its affixes in the vocabulary. */
static uint32_t find_char(const struct bpe *b, const char *s, size_t len, bool first, bool last,
                          struct buf *tmp)
{
    if (!b->prefix && !b->suffix)
        return len == 1 ? b->symbol[(unsigned char)*s] : vocab_find(b->vocab, s, len);
    buf_reset(tmp);
    if (!first && b->prefix)
        buf_str(tmp, b->prefix);
    buf_add(tmp, s, len);
    if (last && b->suffix)
        buf_str(tmp, b->suffix);
    return tmp->oom ? NO_ID : vocab_find(b->vocab, tmp->p, tmp->len);
}

/* Byte fallback of an unknown character. 1: done; 0: some byte tokens are missing. */
static int fall_back(const struct bpe *b, struct bpe_work *w, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (b->fallback[(unsigned char)s[i]] == NO_ID)
            return 0;
    for (size_t i = 0; i < n; i++)
        if (add_sym(w, b->fallback[(unsigned char)s[i]], 1) != 0)
            return -1;
    return 1;
}

static int init_chars(const struct bpe *b, struct bpe_work *w, const char *s, size_t n,
                      struct buf *tmp, struct err *e)
{
    uint32_t unk = 0; /* bytes of the current unknown token */
    for (size_t i = 0, len; i < n; i += len) {
        utf8_decode(s + i, n - i, &len);
        uint32_t id = find_char(b, s + i, len, i == 0, i + len == n, tmp);
        bool affixed = b->prefix || b->suffix;
        if (id != NO_ID) {
            if (unk && add_sym(w, b->unk, unk) != 0)
                return err_nomem(e);
            unk = 0;
            if (add_sym(w, id, (uint32_t)len) != 0)
                return err_nomem(e);
            continue;
        }
        if (b->byte_fallback) {
            int rc = fall_back(b, w, affixed ? tmp->p : s + i, affixed ? tmp->len : len);
            if (rc < 0)
                return err_nomem(e);
            if (rc)
                continue;
        }
        if (b->unk_text)
            return err_set(e, ERR_VALIDATION, "unk_token \"%.60s\" is not in the vocabulary",
                           b->unk_text);
        if (b->unk == NO_ID)
            continue;
        if (unk && !b->fuse_unk) {
            if (add_sym(w, b->unk, unk) != 0)
                return err_nomem(e);
            unk = 0;
        }
        unk += (uint32_t)len;
    }
    return unk && add_sym(w, b->unk, unk) != 0 ? err_nomem(e) : 0;
}

/* ---------------------------------------------------------------- merging */
static void first_ranks(const struct bpe *b, const struct bpe_work *w, const char *text,
                        uint32_t *rank, uint32_t *made)
{
    const struct sym *s = w->sym;
    for (uint32_t i = 0; i + 1 < w->n; i++) {
        const struct bpe_merge *m =
            b->bytes ? &b->bytes[(unsigned char)text[i] << 8 | (unsigned char)text[i + 1]]
                     : bpe_find(b, s[i].id, s[i + 1].id);
        rank[i] = m ? m->rank : NO_RANK;
        made[i] = m ? m->id : 0;
    }
}

static uint32_t lowest(const uint32_t *rank, uint32_t n)
{
    uint32_t best = 0, least = rank[0];
    for (uint32_t i = 1; i < n; i++) {
        best = rank[i] < least ? i : best;
        least = rank[i] < least ? rank[i] : least;
    }
    return best;
}

/* `text`: the bytes of the symbols, used in the first round only. */
static void merge_scanning(const struct bpe *b, struct bpe_work *w, const char *text)
{
    uint32_t rank[SCAN_MAX], made[SCAN_MAX], n = w->n;
    struct sym *s = w->sym;
    first_ranks(b, w, text, rank, made);
    while (n > 1) {
        uint32_t best = lowest(rank, n - 1);
        if (rank[best] == NO_RANK)
            break;
        s[best].id = made[best];
        s[best].len += s[best + 1].len;
        uint32_t tail = n - best - 2;
        memmove(s + best + 1, s + best + 2, tail * sizeof *s);
        if (tail) {
            memmove(rank + best + 1, rank + best + 2, (tail - 1) * sizeof *rank);
            memmove(made + best + 1, made + best + 2, (tail - 1) * sizeof *made);
        }
        n--;
        for (uint32_t i = best ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const struct bpe_merge *m = bpe_find(b, s[i].id, s[i + 1].id);
            rank[i] = m ? m->rank : NO_RANK;
            made[i] = m ? m->id : 0;
        }
    }
    w->n = n;
}

static void sift_down(uint64_t *h, size_t n, size_t i)
{
    uint64_t x = h[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && h[child + 1] < h[child])
            child++;
        if (h[child] >= x)
            break;
        h[i] = h[child];
    }
    h[i] = x;
}

static int heap_push(struct bpe_work *w, uint64_t x)
{
    if (w->heap_n == w->heap_cap) {
        size_t cap = w->heap_cap ? w->heap_cap * 2 : 1024;
        uint64_t *h = realloc(w->heap, cap * sizeof *h);
        if (!h)
            return -1;
        w->heap = h;
        w->heap_cap = cap;
    }
    size_t i = w->heap_n++;
    while (i && w->heap[(i - 1) / 2] > x) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = x;
    return 0;
}

static int consider(const struct bpe *b, struct bpe_work *w, uint32_t left)
{
    uint32_t right = left == NO_ID ? NO_ID : w->sym[left].next;
    if (right == NO_ID)
        return 0;
    const struct bpe_merge *m = bpe_find(b, w->sym[left].id, w->sym[right].id);
    return m ? heap_push(w, (uint64_t)m->rank << 32 | left) : 0;
}

static int merge_with_heap(const struct bpe *b, struct bpe_work *w)
{
    struct sym *s = w->sym;
    uint32_t n = w->n, out = 0;
    w->heap_n = 0;
    for (uint32_t i = 0; i < n; i++) {
        s[i].prev = i ? i - 1 : NO_ID;
        s[i].next = i + 1 < n ? i + 1 : NO_ID;
    }
    for (uint32_t i = 0; i + 1 < n; i++)
        if (consider(b, w, i) != 0)
            return -1;
    while (w->heap_n) {
        uint64_t top = w->heap[0];
        w->heap[0] = w->heap[--w->heap_n];
        if (w->heap_n)
            sift_down(w->heap, w->heap_n, 0);
        uint32_t left = (uint32_t)top, right = s[left].len ? s[left].next : NO_ID;
        if (right == NO_ID)
            continue;
        const struct bpe_merge *m = bpe_find(b, s[left].id, s[right].id);
        if (!m || m->rank != top >> 32) /* one of the two has changed since */
            continue;
        s[left].id = m->id;
        s[left].len += s[right].len;
        s[left].next = s[right].next;
        s[right].len = 0;
        if (s[right].next != NO_ID)
            s[s[right].next].prev = left;
        if (consider(b, w, s[left].prev) != 0 || consider(b, w, left) != 0)
            return -1;
    }
    for (uint32_t i = 0; i < n; i++)
        if (s[i].len)
            s[out++] = s[i];
    w->n = out;
    return 0;
}

/* ---------------------------------------------------------------- words */
static struct bpe_word *cache_slot(struct bpe_work *w, const char *s, size_t n)
{
    uint64_t a = 0, b = 0, c = 0;
    if (n >= 16) {
        memcpy(&a, s, 8);
        memcpy(&b, s + 8, 8);
        memcpy(&c, s + n - 8, 8);
    } else if (n >= 8) {
        memcpy(&a, s, 8);
        memcpy(&b, s + n - 8, 8);
    } else {
        memcpy(&a, s, n);
    }
    uint64_t h = hash_mix((a * 0x9E3779B97F4A7C15u) ^ (b * 0xC2B2AE3D27D4EB4Fu) ^
                          (c * 0x165667B19E3779F9u) ^ n);
    return &w->word[h % WORDS];
}

static void remember(struct bpe_work *w, const char *s, size_t n)
{
    struct bpe_word *x = cache_slot(w, s, n);
    if (!w->n || w->n > WORD_IDS)
        return;
    x->bytes = (uint8_t)n;
    x->n = (uint8_t)w->n;
    memcpy(x->text, s, n);
    for (uint32_t i = 0; i < w->n; i++) {
        x->id[i] = w->sym[i].id;
        x->len[i] = (uint8_t)w->sym[i].len;
    }
}

static bool recall(struct bpe_work *w, struct sink *k, const char *s, size_t n, uint32_t at)
{
    const struct bpe_word *x = cache_slot(w, s, n);
    if (x->bytes != n || memcmp(x->text, s, n) != 0)
        return false;
    for (uint32_t i = 0; i < x->n; i++) {
        sink_put(k, x->id[i], at, at + x->len[i]);
        at += x->len[i];
    }
    return true;
}

static int merge_piece(const struct bpe *b, struct bpe_work *w, const char *s, uint32_t n,
                       struct err *e)
{
    struct buf tmp = BUF_INIT;
    int rc = 0;
    w->n = 0;
    if (b->on_bytes)
        rc = init_bytes(b, w, s, n) == 0 ? 0 : err_nomem(e);
    else
        rc = init_chars(b, w, s, n, &tmp, e);
    buf_free(&tmp);
    if (rc != 0)
        return rc;
    if (w->n <= SCAN_MAX)
        merge_scanning(b, w, s);
    else if (merge_with_heap(b, w) != 0)
        return err_nomem(e);
    return 0;
}

/* Encodes a part that no merge crosses. `whole`: it is the whole word from the pre-tokenizer. */
static int piece(const struct bpe *b, struct bpe_work *w, struct sink *k, uint32_t at, uint32_t n,
                 bool whole, struct err *e)
{
    const char *s = k->text->p + at;
    uint32_t id = NO_ID;
    /* with ignore_merges a part of a word may be encoded differently from the same text as a
     * word */
    bool cached = n <= WORD_BYTES && (whole || !b->ignore_merges);
    if (cached && recall(w, k, s, n, at))
        return 0;
    if (whole && b->ignore_merges)
        id = vocab_find(b->on_bytes ? &b->raw : b->vocab, s, n);
    if (id != NO_ID) {
        w->n = 0;
        if (add_sym(w, id, n) != 0)
            return err_nomem(e);
    } else if (merge_piece(b, w, s, n, e) != 0) {
        return -1;
    }
    if (cached)
        remember(w, s, n);
    for (uint32_t i = 0; i < w->n; i++) {
        sink_put(k, w->sym[i].id, at, at + w->sym[i].len);
        at += w->sym[i].len;
    }
    return 0;
}

static bool touch(const struct bpe *b, const char *s)
{
    unsigned char l = (unsigned char)s[-1], r = (unsigned char)s[0];
    return b->touch[l][r / 8] >> r % 8 & 1 || (!b->on_bytes && (r & 0xC0) == 0x80);
}

int bpe_encode(const struct bpe *b, struct bpe_work *w, struct sink *k, uint32_t start,
               uint32_t end, struct err *e)
{
    const char *s = k->text->p;
    uint32_t n = end - start;
    if (n <= WORD_BYTES || !b->may_cut)
        return piece(b, w, k, start, n, true, e);
    if (b->ignore_merges) {
        uint32_t id = vocab_find(b->on_bytes ? &b->raw : b->vocab, s + start, n);
        if (id != NO_ID)
            return sink_put(k, id, start, end), 0;
    }
    for (uint32_t i = start + 1; i < end; i++) {
        if (touch(b, s + i))
            continue;
        if (piece(b, w, k, start, i - start, false, e) != 0)
            return -1;
        start = i;
    }
    return piece(b, w, k, start, end - start, false, e);
}
