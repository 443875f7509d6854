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
};

static int grow(struct bpe *b)
{
    uint64_t cap = b->merge ? (b->mask + 1) * 2 : 4096;
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
    if ((!b->merge || b->merges >= b->mask / 2) && grow(b) != 0)
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

static int add_pending(struct bpe *b, struct pending *p, struct err *e)
{
    struct vocab_key part[3 * PENDING];
    uint32_t id[3 * PENDING];
    const char *at = p->text.p ? p->text.p : "";
    int rc = p->text.oom ? err_nomem(e) : 0;
    for (size_t i = 0; i < 3 * p->n && rc == 0; at += p->len[i++])
        part[i] = (struct vocab_key){at, p->len[i]};
    if (rc == 0)
        vocab_find_all(b->vocab, part, 3 * p->n, id);
    for (size_t i = 0; i < p->n && rc == 0; i++)
        rc = add_merge(b, part + 3 * i, id + 3 * i, e);
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

/* Items are "left right" or ["left", "right"]. */
static int load_merges(struct bpe *b, const char *text, size_t n, struct err *e)
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
            char *gap = l.len ? memchr(l.p, ' ', l.len) : NULL;
            size_t ln = gap ? (size_t)(gap - l.p) : 0;
            if (l.len >= 8 && memcmp(l.p, "#version", 8) == 0)
                continue;
            if (!gap || memchr(gap + 1, ' ', l.len - ln - 1)) {
                jr_fail(&j, "two tokens and one space");
                break;
            }
            rc = put_merge(b, &p, l.p, ln, gap + 1, l.len - ln - 1, e);
        }
    }
    rc = rc == 0 ? add_pending(b, &p, e) : rc;
    if (rc == 0 && j.fault)
        rc = err_set(e, ERR_VALIDATION, "model.merges[%u]: expected %s", b->merges, j.fault);
    buf_free(&l);
    buf_free(&r);
    buf_free(&p.text);
    return rc;
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

int bpe_load(struct bpe *b, const struct vocab *v, const cJSON *j, const char *merges, size_t n,
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
    if (load_merges(b, merges, n, e) != 0)
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
