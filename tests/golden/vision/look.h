/* look.h - prompts with pictures, step by step: what test_vision_models and test_cuda_vision share.
 */
#ifndef TESTS_GOLDEN_LOOK_H
#define TESTS_GOLDEN_LOOK_H
#include "model-server/engine/media/pictures_impl.h"
#include "tests/golden/vision/sight.h"

enum { MOST_TOKENS = MAX_LEN, MOST_SEQS = 3, SEQ_BLOCKS = 16 };

/* ---------------------------------------------------------------- a prompt with pictures */

struct look {
    uint32_t ids[MOST_TOKENS], n, done;
    uint32_t blocks[SEQ_BLOCKS], cell;
    struct media *media;
    float *last; /* logits behind the last token that was computed */
};

static inline int look_open(struct look *k, struct sight *s, const cJSON *c, uint32_t first_block)
{
    struct media_spec specs[SIGHT_MOST_IMAGES];
    uint32_t n = 0;
    memset(k, 0, sizeof(*k));
    k->n = golden_ids(json_get(c, "ids"), k->ids);
    k->last = malloc(s->b.vocab * sizeof(float));
    for (uint32_t i = 0; i < SEQ_BLOCKS; i++)
        k->blocks[i] = first_block + i * 5 % SEQ_BLOCKS;
    int rc = sight_specs(s, c, k->ids, k->n, specs, &n);
    uint32_t read[MOST_TOKENS]; /* by an encoder, with at most one picture */
    memcpy(read, k->ids, sizeof(read));
    if (s->texts) {
        specs[0] = n ? specs[0] : (struct media_spec){0};
        specs[0].ids = read, specs[0].n_ids = k->n;
        specs[0].position = 0, specs[0].tokens = 1;
        k->ids[0] = model_info(s->b.model)->start;
        k->n = n = 1;
    }
    if (rc == 0 && n)
        k->media = media_new(s->pictures, specs, n, k->ids, k->n, 0, &s->e);
    sight_free_specs(specs, n);
    return rc || (n && !k->media) ? -1 : 0;
}

static inline void look_close(struct look *k)
{
    media_free(k->media);
    free(k->last);
}

static inline void look_again(struct look *k) { k->done = k->cell = 0; }

/* Of pictures_encode(); in how many parts it encoded since this was set to 0. */
static _Thread_local uint64_t look_encode_most;
static _Thread_local uint32_t look_encode_parts;

/* One step: take[i] tokens of each. */
static inline int look_step(struct sight *s, struct look *const *v, const uint32_t *take,
                            uint32_t n)
{
    enum { CAP = MOST_SEQS * MOST_TOKENS };
    static _Thread_local uint32_t ids[CAP], pos[CAP], slots[CAP], axes[CAP][3], rows[MOST_SEQS];
    static _Thread_local struct mutual mutual[CAP], sees[CAP];
    static _Thread_local const float *given[CAP];
    static _Thread_local bool sight[CAP];
    const struct model_info *info = model_info(s->b.model);
    struct span spans[MOST_SEQS];
    bool has_axes = false, two_way = false, shown = false;
    uint32_t t = 0;
    uint64_t done = 1;
    int rc_encode = 0;
    while (rc_encode == 0 && done) { /* with a limit, in as many parts as it takes */
        for (uint32_t i = 0; i < n; i++)
            if (v[i]->media)
                media_want(v[i]->media, v[i]->done, v[i]->done + take[i]);
        rc_encode = pictures_encode(s->pictures, look_encode_most, &done, &s->e);
        look_encode_parts += done > 0;
    }
    if (rc_encode)
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        struct look *k = v[i];
        spans[i] = (struct span){.first = t,
                                 .n = take[i],
                                 .kv_len = k->done + take[i],
                                 .blocks = k->blocks,
                                 .seq_len = k->n,
                                 .state_in = k->blocks[k->cell],
                                 .state_out = k->blocks[!k->cell],
                                 .shown = k->media ? media_shown(k->media) : NULL};
        shown |= spans[i].shown != NULL;
        for (uint32_t p = k->done; p < k->done + take[i]; p++, t++) {
            struct media_token m = {.axes = {p, p, p}};
            if (k->media) {
                m = media_token(k->media, p);
                has_axes |= media_has_axes(k->media);
                two_way |= media_is_two_way(k->media);
            }
            ids[t] = k->ids[p], pos[t] = p, given[t] = m.row, mutual[t] = m.mutual;
            sees[t] = m.sees;
            sight[t] = (k->media && media_has(k->media, p)) || k->ids[p] == info->sight_ids[0] ||
                       k->ids[p] == info->sight_ids[1];
            memcpy(axes[t], m.axes, sizeof(m.axes));
            slots[t] = k->blocks[p / BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE;
        }
        rows[i] = t - 1;
    }
    const struct ragged b = {.n_tokens = t,
                             .n_spans = n,
                             .n_out = n,
                             .ids = ids,
                             .pos = pos,
                             .slots = slots,
                             .spans = spans,
                             .out_rows = rows,
                             .given = given,
                             .axes = has_axes ? (const uint32_t(*)[3])axes : NULL,
                             .mutual = two_way ? mutual : NULL,
                             .sees = shown ? sees : NULL,
                             .sight = info->sight ? sight : NULL};
    float *logits = malloc((size_t)n * s->b.vocab * sizeof(float));
    int rc = model_forward(s->b.model, &b, logits, &s->e);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        memcpy(v[i]->last, logits + (size_t)i * s->b.vocab, s->b.vocab * sizeof(float));
        v[i]->done += take[i];
        v[i]->cell ^= 1;
    }
    free(logits);
    return rc;
}

/* The prompt in chunks of at most `chunk` tokens that cut no picture whose tokens see each other.
 */
static inline int look_prefill(struct sight *s, struct look *k, uint32_t chunk)
{
    while (k->done < k->n) {
        uint32_t end = k->n - k->done < chunk ? k->n : k->done + chunk;
        end = k->media ? media_end(k->media, end) : end;
        if (look_step(s, &k, &(uint32_t){end - k->done}, 1))
            return -1;
    }
    return 0;
}

/* The nth row of features, in the order of the prompt, from token *at on; NULL: there is none. */
static inline const float *look_row(const struct look *k, uint32_t nth, uint32_t *at)
{
    const struct media *m = k->media;
    if (m->pictures->crosses) { /* no token has one: they are still in the pictures' memory */
        for (uint32_t i = 0; i < m->n; nth -= m->shapes[i++].rows)
            if (nth < m->shapes[i].rows)
                return m->of[i]->rows + (size_t)nth * tower_row(m->pictures->o.tower);
        return NULL;
    }
    while (*at < k->n) {
        const float *row = media_token(m, (*at)++).row;
        if (row)
            return row;
    }
    return NULL;
}
#endif
