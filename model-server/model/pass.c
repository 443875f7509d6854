#include "model-server/model/pass.h"

/* Rotations depend on the length of the sequence, which the division does not change. */
static struct span cut_span(const struct span *s, uint32_t from, uint32_t to)
{
    uint32_t first = s->first > from ? s->first : from;
    uint32_t end = s->first + s->n < to ? s->first + s->n : to;
    struct span cut = *s;
    cut.first = first - from;
    cut.n = end - first;
    if (first > s->first) /* the previous part has written it */
        cut.state_in = s->state_out;
    cut.kv_len = s->kv_len - (s->first + s->n - end);
    cut.seq_len = s->seq_len > s->kv_len ? s->seq_len : s->kv_len;
    return cut;
}

uint32_t pass_end(const struct ragged *b, uint32_t to)
{
    if (!b->mutual || to == 0)
        return to;
    const struct mutual *m = &b->mutual[to - 1];
    const uint32_t past = b->pos[to - 1] + 1;
    return m->begin != m->end && m->end > past ? to + (m->end - past) : to;
}

struct ragged pass_cut(const struct ragged *b, uint32_t from, uint32_t to, struct span *spans,
                       uint32_t *out_rows)
{
    struct ragged p = {.n_tokens = to - from,
                       .ids = b->ids + from,
                       .pos = b->pos + from,
                       .slots = b->slots + from,
                       .spans = spans,
                       .out_rows = out_rows,
                       .window_slots = b->window_slots ? b->window_slots + from : NULL,
                       .given = b->given ? b->given + from : NULL,
                       .axes = b->axes ? b->axes + from : NULL,
                       .mutual = b->mutual ? b->mutual + from : NULL,
                       .sight = b->sight ? b->sight + from : NULL,
                       .sees = b->sees ? b->sees + from : NULL};
    for (uint32_t i = 0; i < b->n_spans; i++)
        if (b->spans[i].first < to && b->spans[i].first + b->spans[i].n > from)
            spans[p.n_spans++] = cut_span(&b->spans[i], from, to);
    for (uint32_t i = 0; i < b->n_out; i++)
        if (b->out_rows[i] >= from && b->out_rows[i] < to)
            out_rows[p.n_out++] = b->out_rows[i] - from;
    return p;
}

struct ragged pass_rows(const struct ragged *b, uint32_t *words, struct span *spans)
{
    uint32_t *const ids = words, *const pos = ids + b->n_out, *const slots = pos + b->n_out;
    uint32_t *const out_rows = slots + b->n_out;
    const struct span *in = b->spans;
    for (uint32_t i = 0; i < b->n_out; i++) {
        const uint32_t row = b->out_rows[i];
        while (row >= in->first + in->n)
            in++;
        ids[i] = b->ids[row];
        pos[i] = b->pos[row];
        slots[i] = b->slots[row];
        out_rows[i] = i;
        spans[i] = cut_span(in, row, row + 1);
        spans[i].first = i;
    }
    return (struct ragged){.n_tokens = b->n_out,
                           .n_spans = b->n_out,
                           .n_out = b->n_out,
                           .ids = ids,
                           .pos = pos,
                           .slots = slots,
                           .spans = spans,
                           .out_rows = out_rows};
}
