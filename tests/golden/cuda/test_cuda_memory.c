/* test_cuda_memory.c - the CUDA backend's memory: what warm-up takes is all that serving takes, and
 * a device that is too small says who takes what. On the double, whose memory can be counted and
 * chosen. */
#include "common/tokenizer/tokenizer.h"
#include "model-server/engine/engine.h"
#include "tests/check/cuda/cuda_sides.h"

#define MODEL "models/demo"
enum { BLOCK = 16, PREFILL = 300, ROWS = 24, LONGEST = 900 };

struct rig {
    struct device *dev;
    struct model *model;
    struct tokenizer *tok;
    struct engine *engine;
};

static void open_rig(struct rig *r, enum kv_dtype kv)
{
    struct err e = ERR_INIT;
    r->dev = gpu->open(&(struct device_options){.threads = 1, .features = ~0ull}, &e);
    r->tok = tokenizer_load(MODEL, &e);
    struct model_options m = {.ops = gpu, .dev = r->dev, .comm = comm_solo(), .dtype = DT_BF16};
    r->model = r->dev ? model_load(MODEL, &m, &e) : NULL;
    if (!r->tok || !r->model)
        fail_msg("%s (run from the top of the repository)", e.msg);
    struct engine_options o = {.model = r->model,
                               .tok = r->tok,
                               .ops = gpu,
                               .dev = r->dev,
                               .comm = m.comm,
                               .block_size = BLOCK,
                               .kv_dtype = kv,
                               .memory_fraction = 1,
                               .max_total_tokens = LONGEST};
    if (!(r->engine = engine_new(&o, &e)))
        fail_msg("%s", e.msg);
}

static void close_rig(struct rig *r)
{
    engine_free(r->engine);
    model_free(r->model);
    tokenizer_free(r->tok);
    gpu->close(r->dev);
    if (machine)
        assert_int_equal(machine->allocations, 0);
}

static int warm_up(struct rig *r, uint32_t prefill, struct err *e)
{
    static const uint32_t some[] = {2, 3, 4, 5};
    struct seq_spec s[ROWS];
    for (int i = 0; i < ROWS; i++)
        s[i] = (struct seq_spec){
            .id = (uint64_t)i, .prompt = some, .n_prompt = 4, .sampling = sampling_neutral()};
    struct warmup w = {.specs = s, .n = ROWS, .max_prefill_tokens = prefill};
    return engine_warmup(r->engine, &w, e);
}

/* A step of `rows` sequences of `n` new tokens each, after `before`; logits of the last of each. */
static void step(struct rig *r, uint32_t rows, uint32_t n, uint32_t before, float *logits)
{
    struct err e = ERR_INIT;
    uint32_t tokens = rows * n, per = (before + n + BLOCK - 1) / BLOCK;
    uint32_t *ids = calloc(tokens, 4), *pos = malloc(tokens * 4), *slots = malloc(tokens * 4);
    uint32_t *blocks = malloc(rows * per * 4), out[ROWS];
    struct span spans[ROWS];
    for (uint32_t i = 0; i < rows * per; i++)
        blocks[i] = 1 + i;
    for (uint32_t s = 0; s < rows; s++) {
        spans[s] = (struct span){s * n, n, before + n, blocks + s * per, 0};
        out[s] = s * n + n - 1;
        for (uint32_t i = 0; i < n; i++) {
            pos[s * n + i] = before + i;
            slots[s * n + i] =
                blocks[s * per + (before + i) / BLOCK] * BLOCK + (before + i) % BLOCK;
        }
    }
    const struct ragged b = {tokens, rows, rows, ids, pos, slots, spans, out};
    if (model_forward(r->model, &b, logits, &e))
        fail_msg("%s", e.msg);
    free(ids), free(pos), free(slots), free(blocks);
}

TEST(serving_takes_no_more_than_warm_up)
{
    static const uint32_t steps[][3] = {{1, PREFILL, 0}, {ROWS, 1, 450}, {3, 1, LONGEST - 1},
                                        {2, 40, 30},     {5, 4, 300},    {1, 130, 0},
                                        {1, 290, 0},     {8, 17, 5},     {1, 1, LONGEST - 1}};
    struct err e = ERR_INIT;
    struct rig r;
    if (!machine)
        skip();
    machine->total = (size_t)1 << 30;
    for (int sms = 4; sms <= 132; sms += 128) {
        machine->sms = sms;
        open_rig(&r, KV_I8);
        if (warm_up(&r, PREFILL, &e))
            fail_msg("%s", e.msg);
        float *logits = malloc((size_t)ROWS * model_info(r.model)->vocab * 4);
        size_t used = machine->used, count = machine->allocations;
        machine->fail_after = 0; /* there is nothing more */
        for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
            /* Memory is taken when operations are recorded. In some steps kernels run, too: they
             * may not write past its end. */
            machine->idle = i % 4 != (sms > 4);
            step(&r, steps[i][0], steps[i][1], steps[i][2], logits);
            if (machine->used != used || machine->allocations != count)
                fail_msg("%d multiprocessors, step %zu takes memory", sms, i);
        }
        machine->fail_after = -1, machine->idle = false;
        free(logits);
        close_rig(&r);
    }
    machine->sms = 132;
}

TEST(a_device_that_is_too_small_says_who_takes_what)
{
    struct err e = ERR_INIT;
    struct rig r;
    if (!machine)
        skip();
    /* total may be chosen before the first allocation of a process: the rest is taken away here */
    open_rig(&r, KV_BF16);
    size_t left = machine->total - machine->used - ((size_t)30 << 20);
    void *other = gpu->alloc(r.dev, left, &e);
    assert_non_null(other);
    assert_int_equal(warm_up(&r, 200, &e), -1);
    assert_non_null(strstr(e.msg, "Not enough memory for a KV cache: "));
    assert_non_null(strstr(e.msg, "a request of 900 tokens takes "));
    assert_non_null(strstr(e.msg, "of 1.00 GiB, weights take 0.00"));
    assert_non_null(strstr(e.msg, "workspaces 0.0"));
    assert_non_null(strstr(e.msg, "--max-batch-prefill-tokens"));
    e = (struct err)ERR_INIT;
    assert_int_equal(warm_up(&r, 100000, &e), -1); /* activations alone are too many */
    assert_non_null(strstr(e.msg, "Not enough memory to handle 100000 prefill tokens"));
    gpu->free(r.dev, other);
    e = (struct err)ERR_INIT;
    if (warm_up(&r, 200, &e)) /* and the engine is none the worse for it */
        fail_msg("%s", e.msg);
    close_rig(&r);
}

int main(void) { return cuda_tests_run(); }
