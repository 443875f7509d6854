#include "model-server/engine/step/put.h"
#include "model-server/engine/windows.h"
#include <assert.h>
#include <string.h>

struct state_pair {
    uint32_t in, out;
};

/* The cells of the tokens from s->start on: for the step's first pass, for a later pass of it, or
 * for the next step if it is enqueued before this one's tokens are accepted. */
static struct state_pair states_of(const struct seq *s)
{
    if (s->start == seq_from(s))
        return (struct state_pair){s->cell[0], s->cell[1]};
    const bool behind = s->start == s->cached + s->step;
    return (struct state_pair){s->cell[1], s->cell[behind ? 0 : 1]};
}

/* The image entries of a token that no image has. */
static void put_plain(struct stepper *st, uint32_t at)
{
    st->given[at] = NULL;
    st->mutual[at] = st->sees[at] = (struct mutual){0, 0};
    for (int a = 0; a < 3; a++)
        st->axes[at][a] = st->pos[at];
}

/* Fills ragged's image entries of tokens from row `from` on, the last rows, which belong to `s`.
 * The first sequence with images also fills those of all earlier rows. */
static void put_media(struct stepper *st, struct ragged *b, const struct seq *s, uint32_t from)
{
    if (!s->media && !b->given)
        return;
    for (uint32_t i = b->given ? from : 0; i < b->n_tokens; i++)
        put_plain(st, i);
    b->given = st->given;
    for (uint32_t i = from; s->media && i < b->n_tokens; i++) {
        const struct media_token m = media_token(s->media, st->pos[i]);
        st->given[i] = m.row;
        st->mutual[i] = m.mutual;
        st->sees[i] = m.sees;
        if (media_has_axes(s->media)) {
            memcpy(st->axes[i], m.axes, sizeof(m.axes));
            b->axes = (const uint32_t(*)[3])st->axes;
        }
    }
    if (s->media && media_is_two_way(s->media))
        b->mutual = st->mutual;
    if (s->media && media_shown(s->media))
        b->sees = st->sees;
}

/* The same of struct ragged's `sight`, in steps with such tokens. */
static void put_sight(struct stepper *st, struct ragged *b, const struct seq *s, uint32_t from)
{
    const uint32_t *const ids = model_info(st->model)->sight_ids;
    bool any = b->sight != NULL;
    for (uint32_t i = from; i < b->n_tokens; i++) {
        const uint32_t p = st->pos[i];
        st->sight[i] = (s->media && media_has(s->media, p)) ||
                       (p < s->n_prompt && (s->ids[p] == ids[0] || s->ids[p] == ids[1]));
        any |= st->sight[i];
    }
    b->sight = any ? st->sight : NULL;
}

/* A token's rotation may depend on the length of its sequence when it was first computed: that of
 * the prompt, or its own position. Recomputed tokens get the same length, in one span each. */
void step_put(struct stepper *st, struct ragged *b, struct seq *s, uint32_t len)
{
    const uint32_t end = s->start + len;
    const struct state_pair state = states_of(s);
    assert(len > 0 && b->n_tokens + len <= st->cap_tokens);
    assert(!s->windows == !st->window);
    if (st->heads) {
        s->head.fresh =
            st->capture ? st->capture + (size_t)b->n_tokens * st->heads->of.width : NULL;
        s->head.fresh_at = s->start;
    }
    windows_pass(s, st->window, st->block_size);
    for (uint32_t p = s->start, n; p < end; p += n) {
        n = end - p;
        if (st->by_length && end > s->n_prompt)
            n = p < s->n_prompt ? s->n_prompt - p : 1;
        assert(b->n_spans < st->cap_spans);
        st->spans[b->n_spans++] = (struct span){.first = b->n_tokens + (p - s->start),
                                                .n = n,
                                                .kv_len = p + n,
                                                .blocks = s->blocks,
                                                .windows = s->windows,
                                                .shown = s->media ? media_shown(s->media) : NULL,
                                                .adapter = s->adapter,
                                                .state_in = state.in,
                                                .state_out = state.out,
                                                .seq_len = p < s->n_prompt ? s->n_prompt : p + n};
    }
    for (uint32_t p = s->start; p < end; p++) {
        assert(p / st->block_size < s->n_blocks);
        /* a placeholder may be outside the vocabulary, and a draft may repeat it */
        st->ids[b->n_tokens] = s->ids[p] < st->vocab ? s->ids[p] : 0;
        st->pos[b->n_tokens] = p;
        st->slots[b->n_tokens] =
            s->blocks[p / st->block_size] * st->block_size + p % st->block_size;
        if (s->windows)
            st->window_slots[b->n_tokens] =
                s->windows[p / st->block_size] * st->block_size + p % st->block_size;
        b->n_tokens++;
    }
    put_media(st, b, s, b->n_tokens - len);
    if (st->sight)
        put_sight(st, b, s, b->n_tokens - len);
}

void step_copy_block(struct stepper *st, uint32_t from, uint32_t to)
{
    assert(st->n_copies < SIBLINGS_MOST);
    st->copy_from[st->n_copies] = from;
    st->copy_to[st->n_copies++] = to;
}

int step_copy_blocks(struct stepper *st, struct err *e)
{
    return st->n_copies ? model_kv_copy(st->model, st->copy_from, st->copy_to, st->n_copies, e) : 0;
}

void step_put_sibling(struct stepper *st, struct ragged *b, struct seq *s)
{
    struct sibling *t = &s->sibling;
    const uint32_t at = s->n / st->block_size, len = sibling_tokens(s->n, st->block_size);
    const uint32_t ids[] = {s->ids[s->n - 1], t->token}, first = b->n_tokens;
    if (!t->on)
        return;
    assert(!s->cells && !s->windows && at < s->n_blocks && b->n_spans < st->cap_spans);
    memcpy(t->table, s->blocks, at * sizeof(*t->table));
    t->table[at] = t->block;
    if (s->n % st->block_size > 1)
        step_copy_block(st, s->blocks[at], t->block);
    st->spans[b->n_spans++] = (struct span){.first = first,
                                            .n = len,
                                            .kv_len = s->n + 1,
                                            .blocks = t->table,
                                            .shown = s->media ? media_shown(s->media) : NULL,
                                            .adapter = s->adapter,
                                            .seq_len = s->n + 1};
    for (uint32_t i = 0; i < len; i++, b->n_tokens++) {
        const uint32_t p = s->n + 1 - len + i, id = ids[2 - len + i];
        st->ids[b->n_tokens] = id < st->vocab ? id : 0;
        st->pos[b->n_tokens] = p;
        st->slots[b->n_tokens] = t->block * st->block_size + p % st->block_size;
    }
    put_media(st, b, s, first);
    st->out_rows[b->n_out++] = b->n_tokens - 1;
    t->row = st->capture && st->heads
                 ? st->capture + (size_t)(b->n_tokens - 1) * st->heads->of.width
                 : NULL;
}
