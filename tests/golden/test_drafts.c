/* Draft heads against a reference (make_drafts.py): the logits of every row, those of further
 * drafts from the row before, in one piece and in chunks, on one rank and on two. */
#include "tests/golden/golden.h"
#include <pthread.h>
#include <unistd.h>

#define TOLERANCE 1e-4
#define MADE      "build/golden/drafts/"

static const char *const names[] = {"deepseek_v3",  "glm4_moe",   "qwen3_next", "qwen3_5_text",
                                    "llama",        "eagle",      "eagle3",     "eagle3_qwen3",
                                    "deepseek_v32", "glm_moe_dsa"};
enum { N_NAMES = sizeof(names) / sizeof(names[0]), DEEPER = 2, VOCAB = 320 };

struct expected {
    uint32_t ids[MAX_LEN], n;
    float rows[MAX_LEN][VOCAB], deeper[DEEPER][VOCAB];
    uint32_t drafts[MAX_LEN], n_deeper;
};
struct drafts_run {
    pthread_t thread;
    const char *dir, *heads, *group; /* heads: a folder of theirs, or NULL */
    const cJSON *prompts;
    int rank, world, rc;
    uint32_t chunk; /* rows of a pass of the head; 0: all */
    double error;
    struct err e;
};

static void read_row(const cJSON *from, float *row)
{
    const cJSON *v;
    uint32_t n = 0;
    cJSON_ArrayForEach(v, from) row[n++] = cJSON_IsNull(v) ? -INFINITY : (float)v->valuedouble;
}

static void read_expected(const cJSON *from, struct expected *x)
{
    const cJSON *row;
    uint32_t n = 0;
    x->n = golden_ids(json_get(from, "ids"), x->ids);
    cJSON_ArrayForEach(row, json_get(from, "rows")) read_row(row, x->rows[n++]);
    x->n_deeper = 0;
    cJSON_ArrayForEach(row, json_get(from, "deeper")) read_row(row, x->deeper[x->n_deeper++]);
    golden_ids(json_get(from, "drafts"), x->drafts);
}

static double distance(const float *got, const float *want, uint32_t n)
{
    double most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = larger(most, got[i] == want[i] ? 0 : got[i] - want[i]); /* both may be infinite */
    return most;
}

/* Rows [from, from + n) of the head, all logits wanted. */
static int head_rows(struct bench *b, const uint32_t *blocks, const uint32_t *behind, uint32_t from,
                     uint32_t n, uint32_t depth, const float *hidden, float *logits, float *next,
                     struct err *e)
{
    static _Thread_local uint32_t pos[MAX_LEN], slots[MAX_LEN], rows[MAX_LEN];
    static _Thread_local const float *at[MAX_LEN];
    const size_t width = model_info(b->model)->draft.width;
    for (uint32_t i = 0; i < n; i++) {
        pos[i] = from + i;
        slots[i] = blocks[pos[i] / BLOCK_SIZE] * BLOCK_SIZE + pos[i] % BLOCK_SIZE;
        rows[i] = i;
        at[i] = hidden + i * width;
    }
    const struct span span = {
        .n = n, .kv_len = from + n, .blocks = blocks, .seq_len = from + n, .state_out = 1};
    return model_draft(b->model,
                       &(struct draft_step){.b = {.n_tokens = n,
                                                  .n_spans = 1,
                                                  .n_out = n,
                                                  .ids = behind,
                                                  .pos = pos,
                                                  .slots = slots,
                                                  .spans = &span,
                                                  .out_rows = rows},
                                            .depth = depth,
                                            .rows = at,
                                            .logits = logits,
                                            .next = next},
                       e);
}

static int judge_drafts(struct bench *b, const struct expected *x, struct drafts_run *r)
{
    static _Thread_local struct bench_seq s;
    static _Thread_local struct prompt p;
    struct bench_seq *const one[] = {&s};
    const uint32_t width = model_info(b->model)->draft.width, all = x->n - 1;
    const uint32_t hidden = model_info(b->model)->hidden;
    float *rows = calloc((size_t)MAX_LEN * width, sizeof(*rows));
    float *logits = calloc((size_t)MAX_LEN * VOCAB, sizeof(*logits));
    float *next = calloc((size_t)MAX_LEN * hidden, sizeof(*next));
    uint32_t order[MAX_SEQ_BLOCKS], n = p.n = x->n, last = 1;
    memcpy(p.ids, x->ids, sizeof(p.ids));
    for (uint32_t i = 0; i < MAX_SEQ_BLOCKS; i++)
        order[i] = MAX_SEQ_BLOCKS - 1 - i;
    seq_init(&s, b, &p, order);
    model_capture(b->model, rows);
    int rc = bench_step(b, one, &n, 1, &r->e);
    for (uint32_t from = 0, k; rc == 0 && from < all; from += k) {
        k = r->chunk && r->chunk < all - from ? r->chunk : all - from;
        rc = head_rows(b, s.blocks, s.ids + from + 1, from, k, 0, rows + (size_t)from * width,
                       logits, next, &r->e);
        for (uint32_t i = 0; i < k; i++)
            r->error =
                larger(r->error, distance(logits + (size_t)i * VOCAB, x->rows[from + i], VOCAB));
        last = k;
    }
    memmove(next, next + (size_t)(last - 1) * hidden, hidden * sizeof(*next));
    for (uint32_t d = 0; rc == 0 && d < x->n_deeper; d++) {
        rc = head_rows(b, s.blocks, &x->drafts[d], all + d, 1, d + 1, next, logits, next, &r->e);
        r->error = larger(r->error, distance(logits, x->deeper[d], VOCAB));
    }
    free(rows), free(logits), free(next), free(s.rows);
    return rc;
}

static void *drafts_main(void *arg)
{
    struct drafts_run *r = arg;
    struct bench b = {0};
    struct comm *c =
        r->world > 1 ? comm_shm_open(r->group, r->rank, r->world, 20000, &r->e) : comm_solo();
    const struct bench_setup setup = {
        .dir = r->dir, .dtype = -1, .draft_heads = true, .draft_dir = r->heads};
    const cJSON *prompt;
    struct expected *x = malloc(sizeof(*x));
    r->rc = c && x ? bench_open_with(&b, &setup, c, 1, MAX_SEQ_BLOCKS, &r->e) : -1;
    if (r->rc == 0 && !model_info(b.model)->draft.kind)
        r->rc = err_set(&r->e, ERR_SYSTEM, "no head was found");
    cJSON_ArrayForEach(prompt, r->prompts)
    {
        if (r->rc)
            break;
        read_expected(prompt, x);
        r->rc = judge_drafts(&b, x, r);
    }
    free(x);
    if (c) {
        bench_close(&b);
        comm_close(c);
    }
    return NULL;
}

static void judge_world(const char *dir, const cJSON *prompts, int world, uint32_t chunk)
{
    static struct drafts_run runs[2];
    char group[64], heads[PATH_LEN + 32];
    snprintf(heads, sizeof(heads), "%s/heads", dir);
    snprintf(group, sizeof(group), "drafts-%d-%d", (int)getpid(), world);
    for (int i = 0; i < world; i++) {
        runs[i] = (struct drafts_run){.dir = dir,
                                      .heads = access(heads, R_OK) == 0 ? heads : NULL,
                                      .group = group,
                                      .prompts = prompts,
                                      .rank = i,
                                      .world = world,
                                      .chunk = chunk};
        assert_int_equal(pthread_create(&runs[i].thread, NULL, drafts_main, &runs[i]), 0);
    }
    for (int i = 0; i < world; i++)
        assert_int_equal(pthread_join(runs[i].thread, NULL), 0);
    for (int i = 0; i < world; i++) {
        if (runs[i].rc)
            fail_msg("%s, rank %d of %d: %s", dir, i, world, runs[i].e.msg);
        if (!(runs[i].error <= TOLERANCE))
            fail_msg("%s, rank %d of %d, chunks of %u: off by %g", dir, i, world, chunk,
                     runs[i].error);
    }
    print_message("%s, %d ranks, chunks of %u: %.2g\n", dir, world, chunk, runs[0].error);
}

static void heads_say_what_the_reference_says(void **state)
{
    char path[PATH_LEN + 32], dir[PATH_LEN];
    int found = 0;
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        struct err e;
        snprintf(dir, sizeof(dir), MADE "%s", names[i]);
        snprintf(path, sizeof(path), "%s/drafts.json", dir);
        if (access(path, R_OK) != 0)
            continue;
        cJSON *root = json_load(path, 1 << 26, &e);
        assert_non_null(root);
        const cJSON *prompts = json_get(root, "prompts");
        judge_world(dir, prompts, 1, 0);
        judge_world(dir, prompts, 1, 3);
        judge_world(dir, prompts, 2, 0);
        cJSON_Delete(root);
        found++;
    }
    if (!found)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(heads_say_what_the_reference_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
