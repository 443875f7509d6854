#include "router/scheduler/contest.h"
#include <assert.h>

/* Weight of the newest newcomer, and of the newest step, in their averages. */
#define NEWEST      0.25
#define NEWEST_STEP 0.125
/* Share of a newcomer's time alone that a step takes, and share of the step that its rows take. */
#define STEP_SHARE 0.4
#define ROWS_SHARE 0.5
/* Multiples of a step's fixed cost that are always granted. While that is unknown, prompts get at
 * least a LEAST_STEPS-th of what they get without a contest. */
enum { LEAST_STEPS = 5, LEAST_ROWS = 2 };
/* The cost of a row is known if numbers of rows were seen that differ by this factor. */
#define APART 1.5

void contest_note(struct contest *c, uint32_t tokens, int64_t now_ns)
{
    c->tokens += c->until_ns ? NEWEST * (tokens - c->tokens) : tokens;
    c->until_ns = now_ns + CONTEST_NS;
}

void contest_step(struct contest *c, uint32_t rows, uint32_t tokens, double seconds)
{
    if (rows == 0 || tokens > 0 || seconds <= 0)
        return;
    uint32_t i = 31 - (uint32_t)__builtin_clz(rows);
    i = i < CONTEST_SIZES ? i : CONTEST_SIZES - 1;
    const double w = c->seen[i].rows > 0 ? NEWEST_STEP : 1;
    c->seen[i].rows += w * (rows - c->seen[i].rows);
    c->seen[i].seconds += w * (seconds - c->seen[i].seconds);
}

static double most(double a, double b) { return a > b ? a : b; }

struct cost {
    double fixed, row; /* seconds */
    double rows;       /* fewest seen; 0: no step without prompts was seen */
};

/* False: the two cannot be told apart yet. */
static bool find_cost(const struct contest *c, struct cost *out)
{
    uint32_t few = 0, many = CONTEST_SIZES;
    while (few < CONTEST_SIZES && c->seen[few].rows <= 0)
        few++;
    *out = (struct cost){.rows = few < CONTEST_SIZES ? c->seen[few].rows : 0};
    while (many > few && c->seen[many - 1].rows <= 0)
        many--;
    if (few == CONTEST_SIZES || c->seen[many - 1].rows < APART * out->rows)
        return false;
    assert(many - 1 > few);
    out->row = most(0, (c->seen[many - 1].seconds - c->seen[few].seconds) /
                           (c->seen[many - 1].rows - out->rows));
    out->fixed = most(0, c->seen[few].seconds - out->row * out->rows);
    return true;
}

void contest_bound(const struct contest *c, const struct pace *p, int64_t now_ns, struct load *l)
{
    struct cost k;
    if (now_ns >= c->until_ns || !pace_knows_prompts(p))
        return;
    assert(p->c > 0);
    const bool known = find_cost(c, &k);
    const double alone = k.fixed + p->c * c->tokens;
    const double step = most(STEP_SHARE * alone, LEAST_STEPS * k.fixed);
    l->shared_tokens = pace_budget(p, l->n_tokens ? l->n_tokens : 1, step, l->prompt_tokens);
    if (!known) {
        const uint32_t least = l->prompt_tokens / LEAST_STEPS;
        l->shared_tokens = l->shared_tokens > least ? l->shared_tokens : least;
        l->rows_most = (uint32_t)most(1, (k.rows > 0 ? k.rows : l->n_running) / 2);
        return;
    }
    const double room = most(ROWS_SHARE * step, LEAST_ROWS * k.fixed) - k.fixed;
    const double rows = k.row > 0 ? room / k.row : UINT32_MAX;
    l->rows_most = rows >= UINT32_MAX ? UINT32_MAX : rows < 1 ? 1 : (uint32_t)rows;
}
