#include "model-server/spec/acceptance.h"

/* The weight of an observation decreases by an eighth with each draft, and by a sixty-fourth with
 * each unused chance, or less after losses. */
static const float LEARN = 1.0f / 8, FADE = 1.0f / 64, LEARN_AT_FIRST = 1.0f / 4;
enum { MOST_LOSSES = 3 };
static const float AT_FIRST[DRAFT_KINDS] = {
    [DRAFT_OFFERED] = 0.7f,    [DRAFT_SHORT_MATCH] = 0.4f, [DRAFT_MATCH] = 0.6f,
    [DRAFT_LONG_MATCH] = 0.8f, [DRAFT_HEAD] = 0.7f,        [DRAFT_SIBLING] = 0.1f};

enum draft_kind draft_kind_of(uint32_t match)
{
    return match < 3 ? DRAFT_SHORT_MATCH : match < 5 ? DRAFT_MATCH : DRAFT_LONG_MATCH;
}

struct acceptance acceptance_new(void)
{
    struct acceptance a = {0};
    for (int k = 0; k < DRAFT_KINDS; k++)
        a.rate[k] = AT_FIRST[k];
    return a;
}

/* Heads are excluded: gate.h stops those that do not pay. */
static bool may_stop(enum draft_kind k) { return k <= DRAFT_LONG_MATCH; }
static bool is_match(enum draft_kind k) { return k >= DRAFT_SHORT_MATCH && k <= DRAFT_LONG_MATCH; }

void acceptance_learn(struct acceptance *a, enum draft_kind k, uint32_t verified, uint32_t accepted)
{
    for (uint32_t i = 0; i < accepted; i++)
        a->rate[k] += (1 - a->rate[k]) * LEARN;
    if (accepted < verified)
        a->rate[k] -=
            a->rate[k] * (a->proven[k] || accepted || !may_stop(k) ? LEARN : LEARN_AT_FIRST);
    if (accepted)
        a->losses[k] = 0, a->proven[k] = true;
    else if (may_stop(k) && a->losses[k] < MOST_LOSSES)
        a->losses[k]++;
}

void acceptance_fade(struct acceptance *a, enum draft_kind k)
{
    a->rate[k] += (AT_FIRST[k] - a->rate[k]) * FADE / (float)(1 << a->losses[k]);
}

double draft_gain(const struct acceptance *a, enum draft_kind k, uint32_t j)
{
    double p = 1;
    if (j > 1 && !a->proven[k] && is_match(k))
        return 0;
    while (j--)
        p *= a->rate[k];
    return p;
}

static double time_of(const struct step_worth *w) { return 1 + w->extra + w->cost * (w->rows - 1); }

bool worth_row(const struct step_worth *w, double tokens)
{
    return tokens * time_of(w) > w->cost * w->tokens;
}

bool worth_pass(const struct step_worth *w, double cost, uint32_t rows, double tokens)
{
    return tokens * time_of(w) > (cost + w->cost * rows) * w->tokens;
}
