/* The merge list and its tables. */
#include "common/tokenizer/bpe_impl.h"
#include "common/tokenizer/byte_chars.h"
#include "common/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEFT, RIGHT, JOINED, PENDING = 32 };

/* Merges that were read and not added yet, so that their texts are looked up together. */
struct pending {
    struct buf text; /* left, right and joined of each, one after the other */
    size_t len[3 * PENDING], n;
    uint32_t joined; /* of the last merge */
};

/* Merges in a table of this many slots. A search stays short, and vocabularies of 128 and 151
 * thousand tokens do not need twice as many. */
static uint64_t most_of(uint64_t slots) { return slots / 8 * 5; }

static int resize(struct bpe *b, uint64_t cap)
{
    struct bpe_merge *old = b->merge;
    uint64_t n = old ? b->mask + 1 : 0;
    b->merge = malloc(cap * sizeof *b->merge);
    if (!b->merge) {
        b->merge = old;
        return -1;
    }
    memset(b->merge, 0xFF, cap * sizeof *b->merge);
    b->mask = cap - 1;
    for (uint64_t i = 0; i < n; i++)
        if (old[i].pair != NO_PAIR)
            b->merge[bpe_slot(b, old[i].pair)] = old[i];
    free(old);
    return 0;
}

static int grow(struct bpe *b) { return resize(b, b->merge ? (b->mask + 1) * 2 : 4096); }

/* Memory for n merges. */
static int reserve(struct bpe *b, uint64_t n)
{
    uint64_t cap = 4096;
    while (n >= most_of(cap))
        cap *= 2;
    return resize(b, cap);
}

/* Converts a vocabulary text to the bytes it represents; false: it represents none. */
static bool spell(const char *s, size_t n, struct buf *out)
{
    buf_reset(out);
    for (size_t i = 0, len; i < n; i += len) {
        int byte = char_to_byte(utf8_decode(s + i, n - i, &len));
        if (byte < 0)
            return false;
        buf_ch(out, (char)byte);
    }
    return n > 0;
}

static bool is_fallback(const struct bpe *b, uint32_t id)
{
    size_t n;
    const char *s = vocab_text(b->vocab, id, &n);
    return b->byte_fallback && n == 6 && memcmp(s, "<0x", 3) == 0;
}

/* First and last byte of a token, as in the text being encoded. */
static bool edges(const struct bpe *b, const char *s, size_t n, unsigned char *first,
                  unsigned char *last)
{
    size_t len, at = n;
    if (!n)
        return false;
    if (!b->on_bytes) {
        *first = (unsigned char)s[0];
        *last = (unsigned char)s[n - 1];
        return true;
    }
    do
        at--;
    while (at > 0 && ((unsigned char)s[at] & 0xC0) == 0x80);
    int f = char_to_byte(utf8_decode(s, n, &len)),
        l = char_to_byte(utf8_decode(s + at, n - at, &len));
    *first = (unsigned char)f;
    *last = (unsigned char)l;
    return f >= 0 && l >= 0;
}

static int add_merge(struct bpe *b, const struct vocab_key part[3], const uint32_t id[3],
                     struct err *e)
{
    unsigned char x, y;
    for (int k = 0; k < 3; k++)
        if (id[k] == NO_ID)
            return err_set(e, ERR_VALIDATION,
                           "model.merges[%u]: token \"%.*s\" is not in the vocabulary", b->merges,
                           part[k].n < 60 ? (int)part[k].n : 60, part[k].s);
    if ((!b->merge || b->merges >= most_of(b->mask + 1)) && grow(b) != 0)
        return err_nomem(e);
    uint64_t pair = bpe_pair(id[LEFT], id[RIGHT]);
    b->merge[bpe_slot(b, pair)] = (struct bpe_merge){pair, b->merges++, id[JOINED]};
    if (is_fallback(b, id[LEFT]) || is_fallback(b, id[RIGHT]))
        b->may_cut = false;
    if (edges(b, part[LEFT].s, part[LEFT].n, &y, &x) &&
        edges(b, part[RIGHT].s, part[RIGHT].n, &y, &(unsigned char){0}))
        b->touch[x][y / 8] |= (uint8_t)(1u << y % 8);
    return 0;
}

/* Is it the text of this id, and of no other? */
static bool is_text_of(const struct vocab *v, uint32_t id, const struct vocab_key *key)
{
    size_t n;
    const char *s = vocab_text(v, id, &n);
    return s && vocab_unique(v) && n == key->n && memcmp(s, key->s, n) == 0;
}

/* Finds the ids of n merges. Most vocabularies number tokens in the order of the merges: the result
 * is mostly that of the last merge, or the next id. */
static void find_parts(const struct bpe *b, const struct vocab_key *part, size_t n,
                       uint32_t *joined, uint32_t *id)
{
    struct vocab_key key[3 * PENDING];
    uint32_t found[3 * PENDING];
    size_t keys = 0;
    for (size_t i = 0; i < n; i++) {
        const struct vocab_key *p = part + 3 * i;
        key[keys++] = p[LEFT];
        key[keys++] = p[RIGHT];
        id[3 * i + JOINED] = NO_ID;
        for (uint32_t guess = *joined; guess <= *joined + 1; guess++)
            if (is_text_of(b->vocab, guess, &p[JOINED])) {
                id[3 * i + JOINED] = *joined = guess;
                break;
            }
        if (id[3 * i + JOINED] == NO_ID)
            key[keys++] = p[JOINED];
    }
    if (!keys)
        return;
    vocab_find_all(b->vocab, key, keys, found);
    keys = 0;
    for (size_t i = 0; i < n; i++) {
        id[3 * i + LEFT] = found[keys++];
        id[3 * i + RIGHT] = found[keys++];
        if (id[3 * i + JOINED] == NO_ID && (id[3 * i + JOINED] = found[keys++]) != NO_ID)
            *joined = id[3 * i + JOINED];
    }
}

/* Adds n <= PENDING merges, whose places in the table are fetched side by side. */
static int add_found(struct bpe *b, const struct vocab_key *part, const uint32_t *id, size_t n,
                     struct err *e)
{
    int rc = 0;
    for (size_t i = 0; i < n && b->merge; i++)
        __builtin_prefetch(&b->merge[bpe_home(b, bpe_pair(id[3 * i + LEFT], id[3 * i + RIGHT]))],
                           1);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = add_merge(b, part + 3 * i, id + 3 * i, e);
    return rc;
}

static int add_all(struct bpe *b, const struct vocab_key *part, size_t n, uint32_t *joined,
                   struct err *e)
{
    uint32_t id[3 * PENDING];
    find_parts(b, part, n, joined, id);
    return add_found(b, part, id, n, e);
}

static int add_pending(struct bpe *b, struct pending *p, struct err *e)
{
    struct vocab_key part[3 * PENDING];
    const char *at = p->text.p ? p->text.p : "";
    int rc = p->text.oom ? err_nomem(e) : 0;
    for (size_t i = 0; i < 3 * p->n && rc == 0; at += p->len[i++])
        part[i] = (struct vocab_key){at, p->len[i]};
    if (rc == 0)
        rc = add_all(b, part, p->n, &p->joined, e);
    buf_reset(&p->text);
    p->n = 0;
    return rc;
}

static int put_merge(struct bpe *b, struct pending *p, const char *l, size_t ln, const char *r,
                     size_t rn, struct err *e)
{
    const size_t prefix = b->prefix ? strlen(b->prefix) : 0, skip = prefix < rn ? prefix : rn;
    size_t *len = p->len + 3 * p->n++;
    buf_add(&p->text, l, ln);
    buf_add(&p->text, r, rn);
    buf_add(&p->text, l, ln);
    buf_add(&p->text, r + skip, rn - skip);
    len[LEFT] = ln;
    len[RIGHT] = rn;
    len[JOINED] = ln + rn - skip;
    return p->n == PENDING ? add_pending(b, p, e) : 0;
}

/* "left right". 0: put; 1: it is none; -1: `e`. */
static int put_words(struct bpe *b, struct pending *p, const char *s, size_t n, struct err *e)
{
    const char *gap = n ? memchr(s, ' ', n) : NULL;
    const size_t left = gap ? (size_t)(gap - s) : 0;
    if (n >= 8 && memcmp(s, "#version", 8) == 0)
        return 0;
    if (!gap || memchr(gap + 1, ' ', n - left - 1))
        return 1;
    return put_merge(b, p, s, left, gap + 1, n - left - 1, e);
}

static int no_words(const struct bpe *b, struct err *e)
{
    return err_set(e, ERR_VALIDATION, "model.merges[%u]: expected two tokens and one space",
                   b->merges);
}

/* Items are "left right" or ["left", "right"]. */
static int load_json(struct bpe *b, const char *text, size_t n, struct err *e)
{
    struct json_reader j = json_reader(text, n);
    struct buf l = BUF_INIT, r = BUF_INIT;
    struct pending p = {.text = BUF_INIT};
    bool first = true, inner;
    int rc = 0;
    jr_open(&j, '[');
    while (rc == 0 && jr_more(&j, ']', &first)) {
        if (jr_next(&j) == JR_ARRAY) {
            inner = true;
            jr_open(&j, '[');
            if (jr_more(&j, ']', &inner) && jr_string(&j, &l) && jr_more(&j, ']', &inner) &&
                jr_string(&j, &r) && !jr_more(&j, ']', &inner) && !j.fault)
                rc = put_merge(b, &p, l.p, l.len, r.p, r.len, e);
            else
                jr_fail(&j, "a pair of strings");
        } else if (jr_string(&j, &l)) {
            rc = put_words(b, &p, l.p ? l.p : "", l.len, e);
        }
    }
    if (rc == 0)
        rc = add_pending(b, &p, e);
    else if (rc == 1)
        rc = no_words(b, e);
    if (rc == 0 && j.fault)
        rc = err_set(e, ERR_VALIDATION, "model.merges[%u]: expected %s", b->merges, j.fault);
    buf_free(&l);
    buf_free(&r);
    buf_free(&p.text);
    return rc;
}

/* "left right" of a GGUF file. */
static int load_words(struct bpe *b, const struct gguf_value *list, struct err *e)
{
    struct pending p = {.text = BUF_INIT};
    const uint8_t *at = list->data;
    struct gguf_str s;
    int rc = reserve(b, list->n) == 0 ? 0 : err_nomem(e);
    while (rc == 0 && gguf_next(list, &at, &s))
        rc = put_words(b, &p, s.p, s.n, e);
    if (rc == 0)
        rc = add_pending(b, &p, e);
    else if (rc == 1)
        rc = no_words(b, e);
    buf_free(&p.text);
    return rc;
}

/* Merges of pieces. Their ids are known, unless two tokens have one text. */
static int add_scored(struct bpe *b, const struct scored_piece *pieces,
                      const struct scored_merge *m, size_t n, uint32_t *joined, struct err *e)
{
    struct vocab_key part[3 * PENDING];
    uint32_t id[3 * PENDING];
    for (size_t i = 0; i < n; i++, m++) {
        const struct scored_piece *s = &pieces[m->id];
        part[3 * i + LEFT] = (struct vocab_key){s->p, m->cut};
        part[3 * i + RIGHT] = (struct vocab_key){s->p + m->cut, s->n - m->cut};
        part[3 * i + JOINED] = (struct vocab_key){s->p, s->n};
        id[3 * i + LEFT] = m->left;
        id[3 * i + RIGHT] = m->right;
        id[3 * i + JOINED] = m->id;
    }
    return vocab_unique(b->vocab) ? add_found(b, part, id, n, e) : add_all(b, part, n, joined, e);
}

static int load_scored(struct bpe *b, const struct gguf_lists *l, struct err *e)
{
    struct scored_merge *m = NULL;
    size_t n = 0;
    uint32_t joined = 0;
    const struct vocab *ids = vocab_unique(b->vocab) ? b->vocab : NULL;
    int rc = scored_merges(l->pieces, l->vocab.n, ids, &m, &n, e);
    if (rc == 0 && reserve(b, n) != 0)
        rc = err_nomem(e);
    for (size_t at = 0; at < n && rc == 0; at += PENDING)
        rc = add_scored(b, l->pieces, m + at, n - at < PENDING ? n - at : PENDING, &joined, e);
    free(m);
    return rc;
}

static int load_merges(struct bpe *b, const struct bpe_merges *m, struct err *e)
{
    if (!m->lists)
        return load_json(b, m->json, m->n, e);
    return m->lists->pieces ? load_scored(b, m->lists, e)
                            : load_words(b, m->lists->vocab.merges, e);
}

static void load_symbols(struct bpe *b)
{
    char u[8];
    b->may_cut = !b->prefix && !b->suffix;
    bool all = true;
    for (unsigned c = 0; c < 256; c++) {
        size_t n = b->on_bytes ? utf8_encode(byte_to_char((unsigned char)c), u) : 1;
        if (!b->on_bytes)
            u[0] = (char)c;
        b->symbol[c] = b->on_bytes || c < 128 ? vocab_find(b->vocab, u, n) : NO_ID;
        snprintf(u, sizeof u, "<0x%02X>", c);
        b->fallback[c] = vocab_find(b->vocab, u, 6);
        all &= b->on_bytes ? b->symbol[c] != NO_ID : b->fallback[c] != NO_ID;
    }
    /* Unknown characters may be fused with their neighbours: then words cannot be split. */
    b->may_cut &= all && (b->on_bytes || b->byte_fallback);
}

static bool knows_all_bytes(const struct vocab *v)
{
    char u[4];
    for (unsigned c = 0; c < 256; c++)
        if (vocab_find(v, u, utf8_encode(byte_to_char((unsigned char)c), u)) == NO_ID)
            return false;
    return true;
}

static int load_raw(struct bpe *b, struct err *e)
{
    struct buf bytes = BUF_INIT;
    int rc = 0;
    for (uint32_t id = 0; rc == 0 && id < b->vocab->size; id++) {
        size_t n;
        const char *s = vocab_text(b->vocab, id, &n);
        if (s && spell(s, n, &bytes))
            rc = vocab_put(&b->raw, bytes.p, bytes.len, id, e);
    }
    buf_free(&bytes);
    return rc;
}

/* Most look-ups are for two single bytes: these have a table of their own. */
static int load_bytes(struct bpe *b)
{
    b->bytes = malloc((1 << 16) * sizeof *b->bytes);
    if (!b->bytes)
        return -1;
    for (unsigned i = 0; i < 1 << 16; i++) {
        const struct bpe_merge *m = bpe_find(b, b->symbol[i >> 8], b->symbol[i & 255]);
        b->bytes[i] = m ? *m : (struct bpe_merge){NO_PAIR, UINT32_MAX, 0};
    }
    return 0;
}

static char *affix(const cJSON *j, const char *key) /* "" means none */
{
    const char *s = json_str(j, key, "");
    return *s ? strdup(s) : NULL;
}

int bpe_load(struct bpe *b, const struct vocab *v, const cJSON *j, const struct bpe_merges *merges,
             bool on_bytes, struct err *e)
{
    const char *unk = json_str(j, "unk_token", NULL);
    b->vocab = v;
    b->prefix = affix(j, "continuing_subword_prefix");
    b->suffix = affix(j, "end_of_word_suffix");
    b->on_bytes = on_bytes && !b->prefix && !b->suffix && knows_all_bytes(v);
    b->ignore_merges = json_bool(j, "ignore_merges", false);
    b->fuse_unk = json_bool(j, "fuse_unk", false);
    b->byte_fallback = json_bool(j, "byte_fallback", false);
    b->unk = unk ? vocab_find(v, unk, strlen(unk)) : NO_ID;
    if (unk && b->unk == NO_ID && !(b->unk_text = strdup(unk)))
        return err_nomem(e);
    load_symbols(b);
    if (grow(b) != 0)
        return err_nomem(e);
    if (load_merges(b, merges, e) != 0)
        return -1;
    if (b->on_bytes && b->may_cut && load_bytes(b) != 0)
        return err_nomem(e);
    return b->on_bytes && b->ignore_merges ? load_raw(b, e) : 0;
}

void bpe_free(struct bpe *b)
{
    vocab_free(&b->raw);
    free(b->merge);
    free(b->bytes);
    free(b->unk_text);
    free(b->prefix);
    free(b->suffix);
    *b = (struct bpe){0};
}
