/* A step that is walked through in passes has the bits of one that is not: all logits of all rows,
 * over the bundled model. */
#include "model-server/model/model.h"
#include "tests/unit/test.h"
#include <stdlib.h>
#include <string.h>

#define MODEL "models/demo"
enum { BLOCK = 16, SEQS = 3, LEN = 300, TOKENS = SEQS * LEN, PER_SEQ = (LEN + BLOCK - 1) / BLOCK };

/* Logits of one step over SEQS prompts, [TOKENS][*vocab]; what the step's scratch took. */
static float *run(uint64_t step_bytes, uint32_t *vocab, uint64_t *scratch)
{
    static uint32_t ids[TOKENS], pos[TOKENS], slots[TOKENS], out_rows[TOKENS];
    static uint32_t blocks[SEQS * PER_SEQ];
    struct span spans[SEQS];
    struct err e = ERR_INIT;
    struct backend_ops ops = *backend_find("cpu", &e);
    ops.step_bytes = step_bytes;
    struct device *dev = ops.open(&(struct device_options){.threads = 2, .features = ~0ull}, &e);
    struct model_options o = {.ops = &ops, .dev = dev, .comm = comm_solo(), .dtype = -1};
    struct model *m = dev ? model_load(MODEL, &o, &e) : NULL;
    if (!m || model_kv_resize(m, SEQS * PER_SEQ, BLOCK, KV_BF16, &e))
        fail_msg("%s (run from the top of the repository)", e.msg);
    *vocab = model_info(m)->vocab;
    for (uint32_t i = 0; i < SEQS * PER_SEQ; i++)
        blocks[i] = i * 7 % (SEQS * PER_SEQ);
    for (uint32_t i = 0; i < TOKENS; i++) {
        uint32_t p = i % LEN;
        ids[i] = i * 2654435761u % *vocab;
        pos[i] = p;
        slots[i] = blocks[i / LEN * PER_SEQ + p / BLOCK] * BLOCK + p % BLOCK;
        out_rows[i] = i;
    }
    for (uint32_t s = 0; s < SEQS; s++)
        spans[s] = (struct span){s * LEN, LEN, LEN, blocks + (size_t)s * PER_SEQ, 0};
    struct ragged b = {TOKENS, SEQS, TOKENS, ids, pos, slots, spans, out_rows};
    float *logits = malloc((size_t)TOKENS * *vocab * sizeof(float));
    assert_non_null(logits);
    if (model_forward(m, &b, logits, &e))
        fail_msg("%s", e.msg);
    *scratch = model_scratch_held(m);
    model_free(m);
    ops.close(dev);
    return logits;
}

static void passes_have_the_bits_of_the_step(void **state)
{
    uint32_t vocab;
    uint64_t whole_bytes, bytes;
    (void)state;
    float *whole = run(0, &vocab, &whole_bytes);
    float *passes = run(1, &vocab, &bytes); /* of 225 tokens: two of them end within prompts */
    assert_memory_equal(passes, whole, (size_t)TOKENS * vocab * sizeof(float));
    uint64_t logits = (uint64_t)TOKENS * vocab * sizeof(float);
    assert_true(bytes - logits < (whole_bytes - logits) / 2);
    free(whole);
    free(passes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(passes_have_the_bits_of_the_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
