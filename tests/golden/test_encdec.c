/* test_encdec.c - models of an encoder and a decoder against transformers (make_encdec.py), and the
 * bits of a result against batch, chunks, parts of the encoder and ranks. */
#include "model-server/comm/comm_shm.h"
#include "tests/golden/encdec.h"
#include <pthread.h>
#include <unistd.h>

#define MADE "tests/data/encdec/"
static const double TOLERANCE = 1e-4;

static const char *const dirs[] = {MADE "t5",
                                   MADE "flan_t5",
                                   MADE "mt5",
                                   MADE "umt5",
                                   MADE "bart",
                                   MADE "mbart",
                                   MADE "pegasus",
                                   MADE "marian",
                                   MADE "m2m_100",
                                   MADE "blenderbot",
                                   MADE "blenderbot_small",
                                   MADE "mvp",
                                   MADE "plbart",
                                   MADE "led",
                                   MADE "longt5",
                                   MADE "t5gemma",
                                   MADE "t5gemma_plain",
                                   MADE "t5gemma2",
                                   MADE "t5gemma2_odd",
                                   MADE "nllb_moe",
                                   MADE "bert2bert",
                                   MADE "roberta2roberta",
                                   MADE "bert_generation"};
enum { N_DIRS = sizeof(dirs) / sizeof(dirs[0]) };

/* ---------------------------------------------------------------- against transformers */

struct score {
    double logits;
    uint32_t wrong;
};

static void mark(const struct encdec_seq *s, uint32_t vocab, struct score *out)
{
    const struct encdec_text *t = s->text;
    for (uint32_t i = 0; i < t->n_answer; i++)
        out->wrong += argmax(s->rows + (size_t)i * vocab, vocab) != t->answer[i];
    for (uint32_t i = 0; i < t->n_steps; i++)
        for (uint32_t k = 0; k < vocab; k++)
            out->logits = larger(out->logits, s->rows[(size_t)t->steps[i] * vocab + k] -
                                                  t->logits[(size_t)i * vocab + k]);
}

/* Every text alone, token by token. */
static int judge_texts(struct encdec_bench *m, const struct encdec *g, struct score *out,
                       struct err *e)
{
    for (uint32_t i = 0; i < g->n; i++) {
        struct encdec_seq s, *one[] = {&s};
        encdec_seq_init(&s, g, i, 0);
        int rc = encdec_show(m, &s, UINT64_MAX, e);
        while (rc == 0 && s.done < s.text->n_answer)
            rc = encdec_step(&m->b, one, &(uint32_t){1}, 1, e);
        if (rc == 0)
            mark(&s, g->vocab, out);
        free(s.rows);
        if (rc)
            return -1;
    }
    return 0;
}

static const char *folder(void **state, struct encdec *g)
{
    const char *dir = *(const char *const *)*state;
    if (!encdec_load(g, dir))
        fail_msg("%s: no data", dir);
    return dir;
}

static void test_golden(void **state)
{
    struct encdec g;
    struct encdec_bench m;
    struct err e = ERR_INIT;
    struct score s = {0};
    const char *dir = folder(state, &g);
    if (encdec_open(&m, &backend_cpu, dir, comm_solo(), &e) || judge_texts(&m, &g, &s, &e))
        fail_msg("%s: %s", dir, e.msg);
    encdec_close(&m);
    encdec_free(&g);
    if (!(s.logits < TOLERANCE) || s.wrong)
        fail_msg("%s: logits are off by %g, %u tokens are wrong", dir, s.logits, s.wrong);
}

/* ---------------------------------------------------------------- ranks */

struct rank_run {
    pthread_t thread;
    const char *dir, *group;
    const struct encdec *g;
    int rank, rc;
    struct score score;
    struct err e;
};

static void *rank_main(void *arg)
{
    struct rank_run *r = arg;
    struct encdec_bench m = {0};
    struct comm *c = comm_shm_open(r->group, r->rank, 2, 20000, &r->e);
    r->rc = c ? encdec_open(&m, &backend_cpu, r->dir, c, &r->e) : -1;
    if (r->rc == 0)
        r->rc = judge_texts(&m, r->g, &r->score, &r->e);
    if (c) {
        encdec_close(&m);
        comm_close(c);
    }
    return NULL;
}

static void test_two_ranks(void **state)
{
    struct encdec g;
    struct rank_run ranks[2];
    char group[64];
    const char *dir = folder(state, &g);
    snprintf(group, sizeof(group), "encdec-%d", (int)getpid());
    for (int i = 0; i < 2; i++) {
        ranks[i] = (struct rank_run){.dir = dir, .group = group, .g = &g, .rank = i};
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]), 0);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(ranks[i].thread, NULL), 0);
    for (int i = 0; i < 2; i++) {
        if (ranks[i].rc)
            fail_msg("%s, rank %d: %s", dir, i, ranks[i].e.msg);
        if (!(ranks[i].score.logits < TOLERANCE) || ranks[i].score.wrong)
            fail_msg("%s, rank %d: logits are off by %g, %u tokens are wrong", dir, i,
                     ranks[i].score.logits, ranks[i].score.wrong);
    }
    encdec_free(&g);
}

/* ---------------------------------------------------------------- bits */

static void assert_same(const char *dir, const struct encdec_seq *a, const struct encdec_seq *b,
                        uint32_t vocab, const char *what)
{
    for (uint32_t i = 0; i < a->text->n_answer; i++)
        if (memcmp(a->rows + (size_t)i * vocab, b->rows + (size_t)i * vocab, vocab * 4))
            fail_msg("%s, a text of %u, %s: other bits after token %u", dir, a->text->n, what, i);
}

/* All texts side by side, in steps of so many tokens each, or of one and the other in turn. */
static void run_together(struct encdec_bench *m, struct encdec_seq *const *seqs, uint32_t n,
                         uint32_t each)
{
    struct err e = ERR_INIT;
    for (bool more = true; more;) {
        uint32_t take[ENCDEC_TEXTS];
        more = false;
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t left = seqs[i]->text->n_answer - seqs[i]->done, want = each + i;
            take[i] = left < want ? left : want;
            more |= take[i] > 0;
        }
        if (more && encdec_step(&m->b, seqs, take, n, &e))
            fail_msg("%s", e.msg);
    }
}

static void test_bits(void **state)
{
    struct encdec g;
    struct encdec_bench m;
    struct err e = ERR_INIT;
    struct encdec_seq alone[ENCDEC_TEXTS], beside[ENCDEC_TEXTS], *seqs[ENCDEC_TEXTS];
    const char *dir = folder(state, &g);
    if (encdec_open(&m, &backend_cpu, dir, comm_solo(), &e))
        fail_msg("%s", e.msg);
    for (uint32_t i = 0; i < g.n; i++) {
        struct encdec_seq *s = &alone[i];
        encdec_seq_init(s, &g, i, 0);
        int rc = encdec_show(&m, s, UINT64_MAX, &e);
        while (rc == 0 && s->done < s->text->n_answer)
            rc = encdec_step(&m.b, &s, &(uint32_t){1}, 1, &e);
        if (rc)
            fail_msg("%s", e.msg);
    }
    for (uint32_t i = 0; i < g.n; i++) {
        seqs[i] = &beside[i];
        encdec_seq_init(seqs[i], &g, i, i);
        if (encdec_show(&m, seqs[i], 1000, &e)) /* the smallest parts */
            fail_msg("%s", e.msg);
    }
    for (uint32_t each = 1; each < 40; each += 18) { /* as decoding; as after a preemption */
        for (uint32_t i = 0; i < g.n; i++)
            seqs[i]->done = 0;
        run_together(&m, seqs, g.n, each);
        for (uint32_t i = 0; i < g.n; i++)
            assert_same(dir, &alone[i], seqs[i], g.vocab, "beside others");
    }
    for (uint32_t i = 0; i < g.n; i++)
        free(alone[i].rows), free(beside[i].rows);
    encdec_close(&m);
    encdec_free(&g);
}

/* Rows of texts that are encoded together. */
static void test_encoder_bits(void **state)
{
    struct encdec g;
    struct encdec_bench m;
    struct err e = ERR_INIT;
    const struct encdec_text *texts[ENCDEC_TEXTS];
    float *together[ENCDEC_TEXTS], *one;
    const char *dir = folder(state, &g);
    for (uint32_t i = 0; i < g.n; i++)
        texts[i] = &g.texts[i];
    if (encdec_open(&m, &backend_cpu, dir, comm_solo(), &e) ||
        text_encoder_reserve(m.encoder, 64, &e) ||
        encdec_encode(m.encoder, texts, g.n, 3000000, together, &e))
        fail_msg("%s", e.msg);
    for (uint32_t i = 0; i < g.n; i++) {
        if (encdec_encode(m.encoder, &texts[i], 1, UINT64_MAX, &one, &e))
            fail_msg("%s", e.msg);
        assert_memory_equal(one, together[i],
                            (size_t)texts[i]->n * text_encoder_width(m.encoder) * 4);
        free(one), free(together[i]);
    }
    encdec_close(&m);
    encdec_free(&g);
}

/* ---------------------------------------------------------------- all of them */

int main(void)
{
    static void (*const fns[])(void **) = {test_golden, test_two_ranks, test_bits,
                                           test_encoder_bits};
    static const char *const words[] = {"equals transformers", "on two ranks", "has the same bits",
                                        "encodes to the same bits"};
    enum { N_FNS = sizeof(fns) / sizeof(fns[0]) };
    static struct CMUnitTest tests[N_FNS * N_DIRS];
    static char names[N_FNS * N_DIRS][96];
    for (uint32_t f = 0, n = 0; f < N_FNS; f++)
        for (uint32_t i = 0; i < N_DIRS; i++, n++) {
            snprintf(names[n], sizeof(names[n]), "%s %s", dirs[i] + strlen(MADE), words[f]);
            tests[n] =
                (struct CMUnitTest){names[n], fns[f], NULL, NULL, (void *)(uintptr_t)&dirs[i]};
        }
    return cmocka_run_group_tests_name("encdec", tests, NULL, NULL);
}
