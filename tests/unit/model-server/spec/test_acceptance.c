/* How many drafts a step verifies, in steps whose times follow from their rows. */
#include "model-server/spec/acceptance.h"
#include "tests/unit/test.h"

enum { MOST = 64, DRAFTS = 8 };

struct world {
    double cost; /* of another row */
    uint32_t seqs;
    enum draft_kind kind;
    double right; /* share of drafts that are */
};

/* One step, as drafts_plan() chooses: the j-th drafts of all sequences, then the next ones. Adds
 * its time and tokens. */
static void step(struct acceptance *a, const struct world *w, double *time, double *tokens)
{
    struct step_worth s = {.cost = w->cost, .rows = w->seqs, .tokens = w->seqs};
    uint32_t drafted[MOST] = {0};
    bool any = true;
    for (uint32_t j = 1; any && j <= DRAFTS; j++) {
        any = false;
        for (uint32_t i = 0; i < w->seqs; i++) {
            const double gain = draft_gain(&a[i], w->kind, j);
            if (drafted[i] != j - 1 || !worth_row(&s, gain))
                continue;
            s.rows++, s.tokens += gain, drafted[i]++;
            any = true;
        }
    }
    *time += 1 + w->cost * (s.rows - 1);
    *tokens += w->seqs;
    for (uint32_t i = 0; i < w->seqs; i++) {
        uint32_t good = 0;
        while (good < drafted[i] && rand() < w->right * RAND_MAX)
            good++;
        if (drafted[i])
            acceptance_learn(&a[i], w->kind, drafted[i], good);
        else
            acceptance_fade(&a[i], w->kind);
        *tokens += good;
    }
}

/* Time per token, as a multiple of that without drafts, after `first` steps. */
static double price(const struct world *w, int first, int steps)
{
    struct acceptance a[MOST];
    double time = 0, tokens = 0;
    for (uint32_t i = 0; i < w->seqs; i++)
        a[i] = acceptance_new();
    for (int i = 0; i < first; i++)
        step(a, w, &time, &tokens);
    time = tokens = 0;
    for (int i = 0; i < steps; i++)
        step(a, w, &time, &tokens);
    return time / tokens / ((1 + w->cost * (w->seqs - 1)) / w->seqs);
}

/* An n-gram matches in every step, and none is ever right: a text of 100 tokens, and a longer one.
 */
TEST(drafts_that_are_never_right_cost_less_than_three_percent)
{
    double worst = 0, longest = 0;
    for (enum draft_kind k = DRAFT_OFFERED; k <= DRAFT_LONG_MATCH; k++)
        for (uint32_t seqs = 1; seqs <= MOST; seqs *= 2)
            for (double cost = 0.0005; cost < 1.2; cost *= 1.25) {
                const struct world w = {.cost = cost, .seqs = seqs, .kind = k};
                const double got = price(&w, 0, 100), later = price(&w, 100, 1000);
                worst = got > worst ? got : worst;
                longest = later > longest ? later : longest;
            }
    printf("# at most %.4f in 100 steps, %.4f after them\n", worst, longest);
    assert_true(worst < 1.03 && longest < 1.015);
}

TEST(drafts_that_are_right_are_used)
{
    const struct world w = {.cost = 0.1, .seqs = 1, .kind = DRAFT_MATCH, .right = 0.9};
    srand(test_seed(5));
    assert_true(price(&w, 100, 1000) < 0.5);
}

/* After a long time without success they are tried again, and used from then on. */
TEST(a_text_that_begins_to_repeat_itself_is_noticed)
{
    struct world w = {.cost = 0.1, .seqs = 1, .kind = DRAFT_MATCH};
    struct acceptance a = acceptance_new();
    double time = 0, tokens = 0, before;
    for (int i = 0; i < 1000; i++)
        step(&a, &w, &time, &tokens);
    w.right = 1;
    before = tokens;
    for (int i = 0; i < 60; i++)
        step(&a, &w, &time, &tokens);
    assert_true(tokens - before > 150);
}

int main(void) { return tests_run(NULL, NULL); }
