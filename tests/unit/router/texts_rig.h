/* texts_rig.h - requests of texts for tests: of text i one token, whose id is its vector. */
#ifndef TESTS_UNIT_ROUTER_TEXTS_RIG_H
#define TESTS_UNIT_ROUTER_TEXTS_RIG_H
#include "router/embed/embedder.h"
#include "tests/unit/router/infer_rig.h"

enum { TEXTS = 40 };
static const struct fake_shard vectors = {.embeds = true};

struct asked {
    struct embed_job job;
    struct embed_text texts[TEXTS];
    uint32_t ids[TEXTS];
    atomic_bool cancelled, over;
};

static void on_asked(struct embed_job *j)
{
    atomic_store(&CONTAINER_OF(j, struct asked, job)->over, true);
}
static bool asked_over(const void *a) { return atomic_load(&((const struct asked *)a)->over); }

/* A request of n texts; the caller sends a->job. */
static struct asked *asked_new(uint32_t seed, uint32_t n)
{
    struct asked *a = calloc(1, sizeof(*a));
    for (uint32_t i = 0; i < n; i++) {
        a->ids[i] = seed * 100 + i;
        a->texts[i] = (struct embed_text){.ids = &a->ids[i], .n = 1};
    }
    a->job =
        (struct embed_job){.texts = a->texts, .n = n, .cancelled = &a->cancelled, .done = on_asked};
    return a;
}

static void asked_free(struct asked *a)
{
    free(a->job.values);
    free(a);
}

static void expect_vectors(struct asked *a)
{
    assert_true(wait_for(asked_over, a));
    if (a->job.err.kind != ERR_NONE)
        print_error("%s\n", a->job.err.msg);
    assert_int_equal(a->job.err.kind, ERR_NONE);
    assert_int_equal(a->job.n_values, a->job.n);
    for (uint32_t i = 0; i < a->job.n; i++)
        assert_true(a->job.values[i] == (float)a->ids[i]);
    asked_free(a);
}
#endif
