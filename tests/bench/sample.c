// One row of 128 256 scores through the sampling chain.
#include "model-server/sample/sample.h"
#include "common/clock.h"
#include "tests/bench/normal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 128256, TURNS = 40 };

static void bench(const char *name, struct sampling p, uint32_t n_top, const float *logits,
                  struct filter_mem *x)
{
    static float row[VOCAB];
    struct err e = ERR_INIT;
    struct tally t = {0};
    uint32_t id[32];
    float lp[32];
    double best = 1e9, sum = 0;
    for (uint32_t i = 0; i < 4096; i++)
        tally_add(&t, i * 31 % VOCAB, i & 1, &e);
    sampling_normalise(&p, &e);
    for (int i = 0; i < TURNS; i++) {
        memcpy(row, logits, sizeof(row));
        struct sampled out = {.n_top = n_top, .top_id = id, .top_logprob = lp};
        int64_t t0 = clock_ns();
        if (sample_row(&p, &t, 0, NULL, (uint64_t)i, row, VOCAB, x, &out, &e))
            printf("%s: %s\n", name, e.msg);
        double us = (double)(clock_ns() - t0) / 1e3;
        best = us < best ? us : best;
        sum += us;
    }
    printf("%-34s %8.0f us best %8.0f us mean\n", name, best, sum / TURNS);
    tally_free(&t);
}

int main(void)
{
    float *logits = malloc(VOCAB * sizeof(*logits));
    struct filter_mem x;
    struct err e = ERR_INIT;
    uint64_t seed = 1;
    if (!logits || filter_mem_init(&x, VOCAB, &e))
        return 1;
    for (int kind = 0; kind < 2; kind++) {
        for (int i = 0; i < VOCAB; i++)
            logits[i] = kind ? 1.0f : normal(&seed) * 2.5f;
        printf("-- %s\n", kind ? "all equal" : "normal, deviation 2.5");
        struct sampling p = sampling_neutral();
        bench("greedy", p, 0, logits, &x);
        bench("greedy, 5 alternatives", p, 5, logits, &x);
        p.sample = true;
        bench("sampled, no filter", p, 0, logits, &x);
        p.temperature = 0.8f;
        p.top_k = 50;
        bench("temperature .8, top_k 50", p, 0, logits, &x);
        p.top_k = 0, p.top_p = 0.95f;
        bench("temperature .8, top_p .95", p, 0, logits, &x);
        p.top_k = 10, p.typical_p = 0.9f, p.penalties.repetition = 1.2f;
        bench("everything (TGI's all_params)", p, 5, logits, &x);
        p = sampling_neutral();
        p.typical_p = 0.95f;
        bench("typical_p .95", p, 0, logits, &x);
    }
    filter_mem_free(&x);
    free(logits);
    return 0;
}
