#include "common/tokenizer/scored.h"
#include "common/tokenizer/vocab.h"
#include "common/utf8.h"
#include <stdlib.h>

struct merge {
    float score;
    uint32_t left_chars, right_chars, id, left, right;
    uint32_t cut; /* bytes of the left part */
};

static int before(const void *a, const void *b)
{
    const struct merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
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

/* Pieces that can be part of a merge. */
static int index_pieces(const struct scored_piece *v, uint32_t n, struct vocab *ids, struct err *e)
{
    int rc = 0;
    for (uint32_t id = 0; id < n && rc == 0; id++)
        if (v[id].n && vocab_find(ids, v[id].p, v[id].n) == NO_ID)
            rc = vocab_put(ids, v[id].p, v[id].n, id, e);
    return rc;
}

enum { PIECE_MAX = 256 }; /* bytes: longer ones are tried nowhere, and cost the square */

static void cut_piece(const struct scored_piece *s, uint32_t id, const struct vocab *ids,
                      struct buf *out)
{
    struct vocab_key part[2 * PIECE_MAX];
    uint32_t found[2 * PIECE_MAX];
    size_t cuts = 0;
    struct merge m = {.score = s->score, .id = id};
    for (size_t at = utf8_valid_len(s->p, s->n); at < s->n;
         at += utf8_valid_len(s->p + at, s->n - at)) {
        part[2 * cuts] = (struct vocab_key){s->p, at};
        part[2 * cuts++ + 1] = (struct vocab_key){s->p + at, s->n - at};
    }
    vocab_find_all(ids, part, 2 * cuts, found);
    for (size_t i = 0; i < cuts; i++) {
        m.left_chars = (uint32_t)(i + 1);
        m.right_chars = (uint32_t)(cuts - i);
        m.cut = (uint32_t)part[2 * i].n;
        m.left = found[2 * i];
        m.right = found[2 * i + 1];
        if (m.left != NO_ID && m.right != NO_ID)
            buf_add(out, &m, sizeof(m));
    }
}

int scored_merges(const struct scored_piece *v, uint32_t n_pieces, struct buf *b, struct err *e)
{
    struct vocab ids = {0};
    struct buf list = BUF_INIT;
    int rc = index_pieces(v, n_pieces, &ids, e);
    for (uint32_t id = 0; id < n_pieces && rc == 0; id++)
        if (v[id].n && v[id].n <= PIECE_MAX)
            cut_piece(&v[id], id, &ids, &list);
    struct merge *m = (struct merge *)(void *)list.p;
    const size_t n = list.len / sizeof(*m);
    if (n)
        qsort(m, n, sizeof(*m), before);
    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct scored_piece *s = &v[m[i].id];
        buf_str(b, i ? ",[" : "[");
        buf_json_str(b, s->p, m[i].cut);
        buf_ch(b, ',');
        buf_json_str(b, s->p + m[i].cut, s->n - m[i].cut);
        buf_ch(b, ']');
    }
    if (rc == 0 && list.oom)
        rc = err_nomem(e);
    buf_free(&list);
    vocab_free(&ids);
    return rc;
}
