/* Optional parts of llama-server's answers: the times of prompt and answer, the progress of the
 * prompt, and the prompt itself. */
#include "common/clock.h"
#include "router/api/openai/openai.h"

/* A time in ms, rounded to microseconds; 0 if it is unknown. */
static double ms(int64_t from, int64_t to)
{
    const int64_t us = from && to > from ? (to - from) / 1000 : 0;
    return (double)us / 1e3;
}

/* `n` things that were computed in `steps` steps and t milliseconds. The first token of an answer
 * comes with the prompt's last step, so that an answer has one step fewer than tokens. */
static void rate(struct buf *out, const char *name, uint32_t n, uint32_t steps, double t)
{
    buf_fmt(out,
            "\"%s_n\":%u,\"%s_ms\":%.3f,\"%s_per_token_ms\":%.6f,"
            "\"%s_per_second\":%.6f",
            name, n, name, t, name, steps ? t / steps : 0, name,
            steps && t > 0 ? steps * 1e3 / t : 0);
}

static void timings(struct buf *out, uint32_t cached, uint32_t prompt, double prompt_ms,
                    uint32_t predicted, double predicted_ms)
{
    buf_fmt(out, ",\"timings\":{\"cache_n\":%u,", cached);
    rate(out, "prompt", prompt, prompt, prompt_ms);
    buf_ch(out, ',');
    rate(out, "predicted", predicted, predicted ? predicted - 1 : 0, predicted_ms);
    buf_ch(out, '}');
}

/* The scheduler sets the times: `first` before the first token's event, `ended` before the last. */
void openai_timings(struct buf *out, const struct generation *g, uint32_t predicted)
{
    const struct gen_times *t = &g->r.times;
    const int64_t until = g->answer.ended && !g->enough ? t->ended : clock_ns();
    timings(out, g->r.n_cached, g->r.n_input - g->r.n_cached, ms(t->batched, t->first), predicted,
            ms(t->first, until));
}

void openai_told_timings(struct buf *out, const struct openai *o, const struct generation *g)
{
    if (o->timings)
        openai_timings(out, g, o->only_prompt ? 0 : g->answer.n_tokens);
}

void openai_progress(struct buf *out, const struct openai *o, const struct generation *g,
                     const struct gen_event *ev)
{
    const uint32_t done = ev->n_computed - g->r.n_cached;
    const double t = done ? ms(g->r.times.batched, clock_ns()) : 0;
    buf_fmt(out,
            ",\"prompt_progress\":{\"total\":%u,\"cache\":%u,\"processed\":%u,\"time_ms\":%.3f}",
            g->r.n_input, g->r.n_cached, ev->n_computed, t);
    if (o->timings)
        timings(out, g->r.n_cached, done, t, 0, 0);
}

void openai_verbose(struct buf *out, const struct openai *o, const struct generation *g)
{
    const struct ask *q = &o->asks[g->index / o->each];
    if (!o->verbose)
        return;
    buf_str(out, ",\"__verbose\":{\"prompt\":");
    buf_json_str(out, q->inputs ? q->inputs : "", q->inputs ? q->n_inputs : 0);
    buf_fmt(out, ",\"tokens_evaluated\":%u}", g->r.n_input);
}
