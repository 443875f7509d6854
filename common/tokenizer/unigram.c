#include "common/tokenizer/unigram.h"
#include "common/utf8.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNK_PENALTY 10.0

struct lattice_node { /* the best path to a byte */
    double score;
    uint32_t id, from; /* from == NO_ID: no path */
};
struct unigram_work {
    struct lattice_node *node;
    size_t cap;
    struct lattice_cut {
        uint32_t start, end, id;
    } * cut; /* the path, reversed */
    size_t cuts, cut_cap;
};

void unigram_work_free(struct unigram_work *w)
{
    if (!w)
        return;
    free(w->node);
    free(w->cut);
    free(w);
}

int unigram_load(struct unigram *u, const struct vocab *v, double *score, const cJSON *j,
                 struct err *e)
{
    double min = INFINITY;
    char name[8];
    int64_t unk = json_int(j, "unk_id", -1);
    u->vocab = v;
    u->score = score;
    u->byte_fallback = json_bool(j, "byte_fallback", false);
    u->from_end = json_bool(j, "from_end", false);
    if (unk >= (int64_t)v->size)
        return err_set(e, ERR_VALIDATION, "model.unk_id: %lld is past the vocabulary",
                       (long long)unk);
    u->unk = unk < 0 ? NO_ID : (uint32_t)unk;
    for (uint32_t id = 0; id < v->size; id++) {
        size_t n;
        const char *s = vocab_text(v, id, &n);
        if (score[id] < min)
            min = score[id];
        if (u->from_end && score[id] <= UNIGRAM_NEVER)
            continue;
        if (n && trie_add(&u->trie, s, n, vocab_find(v, s, n)) != 0)
            return err_nomem(e);
    }
    u->unk_score = u->from_end ? UNIGRAM_UNKNOWN : (isfinite(min) ? min : 0) - UNK_PENALTY;
    for (unsigned c = 0; c < 256; c++) {
        snprintf(name, sizeof name, "<0x%02X>", c);
        u->fallback[c] = vocab_find(v, name, 6);
    }
    return 0;
}

void unigram_free(struct unigram *u)
{
    trie_free(&u->trie);
    free(u->score);
    *u = (struct unigram){0};
}

static void reach(struct lattice_node *to, double score, uint32_t id, uint32_t from)
{
    if (to->from == NO_ID || score > to->score)
        *to = (struct lattice_node){score, id, from};
}

/* Computes the best paths to every character of s[0..n). -1: an unknown character without
 * unk_id. */
static int forward(const struct unigram *u, struct lattice_node *node, const char *s, uint32_t n)
{
    for (size_t at = 0, len; at < n; at += len) {
        double here = at ? node[at].score : 0;
        uint32_t state = 0;
        bool single = false;
        utf8_decode(s + at, n - at, &len);
        for (size_t i = at; i < n && !trie_empty(&u->trie);) {
            state = trie_step(&u->trie, state, (unsigned char)s[i++]);
            if (state == TRIE_NONE)
                break;
            uint32_t id = u->trie.value[state];
            if (id == TRIE_NONE)
                continue;
            reach(&node[i], here + u->score[id], id, (uint32_t)at);
            single |= i - at == len;
        }
        if (single)
            continue;
        if (u->unk == NO_ID)
            return -1;
        reach(&node[at + len], here + u->unk_score, u->unk, (uint32_t)at);
    }
    return 0;
}

/* node[at]: the best path from a character to the end, whose first token ends at `from`. */
static void from_end(const struct unigram *u, struct lattice_node *node, const char *s, uint32_t n)
{
    node[n] = (struct lattice_node){0, u->unk, n};
    for (size_t at = n; at-- > 0;) {
        size_t len;
        if (((unsigned char)s[at] & 0xC0) == 0x80) /* within a character */
            continue;
        utf8_decode(s + at, n - at, &len);
        struct lattice_node best = {node[at + len].score + u->unk_score, u->unk,
                                    (uint32_t)(at + len)};
        uint32_t state = 0;
        for (size_t i = at; i < n && !trie_empty(&u->trie);) {
            state = trie_step(&u->trie, state, (unsigned char)s[i++]);
            if (state == TRIE_NONE)
                break;
            const uint32_t id = u->trie.value[state];
            if (id != TRIE_NONE && node[i].score + u->score[id] >= best.score)
                best = (struct lattice_node){node[i].score + u->score[id], id, (uint32_t)i};
        }
        node[at] = best;
    }
}

static int reserve(struct unigram_work *w, size_t n)
{
    if (n > w->cap) {
        struct lattice_node *node = realloc(w->node, n * sizeof *node);
        if (!node)
            return -1;
        w->node = node;
        w->cap = n;
    }
    if (n > w->cut_cap) {
        struct lattice_cut *cut = realloc(w->cut, n * sizeof *cut);
        if (!cut)
            return -1;
        w->cut = cut;
        w->cut_cap = n;
    }
    return 0;
}

/* Follows the best path from the end; adjacent unknown pieces are joined. */
static void backward(const struct unigram *u, struct unigram_work *w, uint32_t n)
{
    w->cuts = 0;
    for (uint32_t end = n; end > 0;) {
        const struct lattice_node *x = &w->node[end];
        struct lattice_cut *last = w->cuts ? &w->cut[w->cuts - 1] : NULL;
        if (last && x->id == u->unk && last->id == u->unk && u->unk != NO_ID)
            last->start = x->from;
        else
            w->cut[w->cuts++] = (struct lattice_cut){x->from, end, x->id};
        end = x->from;
    }
}

/* The path of from_end(), reversed as well. */
static void follow(struct unigram_work *w, uint32_t n)
{
    w->cuts = 0;
    for (uint32_t at = 0; at < n; at = w->node[at].from)
        w->cut[w->cuts++] = (struct lattice_cut){at, w->node[at].from, w->node[at].id};
    for (size_t i = 0; i < w->cuts / 2; i++) {
        const struct lattice_cut c = w->cut[i];
        w->cut[i] = w->cut[w->cuts - 1 - i];
        w->cut[w->cuts - 1 - i] = c;
    }
}

static void emit(const struct unigram *u, struct sink *k, uint32_t base,
                 const struct lattice_cut *c)
{
    const char *s = k->text->p + base + c->start;
    uint32_t n = c->end - c->start, id = vocab_find(u->vocab, s, n), start = base + c->start;
    bool all = id == NO_ID && u->byte_fallback;
    for (uint32_t i = 0; all && i < n; i++)
        all = u->fallback[(unsigned char)s[i]] != NO_ID;
    for (uint32_t i = 0; all && i < n; i++)
        sink_put(k, u->fallback[(unsigned char)s[i]], start, start + n);
    if (!all)
        sink_put(k, id == NO_ID ? u->unk : id, start, start + n);
}

int unigram_encode(const struct unigram *u, struct unigram_work **work, struct sink *k,
                   uint32_t start, uint32_t end, struct err *e)
{
    uint32_t n = end - start;
    if (!*work && !(*work = calloc(1, sizeof **work)))
        return err_nomem(e);
    struct unigram_work *w = *work;
    if (reserve(w, (size_t)n + 1) != 0)
        return err_nomem(e);
    if (u->from_end) {
        from_end(u, w->node, k->text->p + start, n);
        follow(w, n);
    } else {
        memset(w->node, 0xFF, ((size_t)n + 1) * sizeof *w->node);
        if (forward(u, w->node, k->text->p + start, n) != 0)
            return err_set(e, ERR_VALIDATION,
                           "a character is not in the vocabulary and model.unk_id is missing");
        backward(u, w, n);
    }
    for (size_t i = w->cuts; i-- > 0;)
        emit(u, k, start, &w->cut[i]);
    return 0;
}
