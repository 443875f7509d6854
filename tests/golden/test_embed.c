/* Encoders, decoders that embed, and rerankers against transformers (fp32 arithmetic on the stored
 * weights), and the bits of a result against its batch, its threads and its ranks.
 *
 *   GOLDEN_TABLE=1 build/tests/golden/test_embed     also prints the table of
 * docs/results/architectures.md
 */
#include "model-server/model/decoder_impl.h"
#include "tests/golden/embed.h"
#include <pthread.h>
#include <unistd.h>

#define TOLERANCE        1e-5
#define HIDDEN_TOLERANCE 1e-4 /* numbers of up to 10 */
#define MADE             "build/golden/embed/"

/* Folders of TEST_DATA; those in build/ are made by tests/golden/make_embed.py. */
static const char *const dirs[] = {
    "embed/bert_mean",
    "embed/bert_cls",
    "embed/xlm_roberta_cls",
    "embed/qwen3_embedding",
    "embed/xlm_roberta_rerank",
    MADE "modernbert",
    MADE "embeddinggemma",
    MADE "embeddinggemma_2",
    MADE "gemma_4",
    MADE "qwen2_both",
    MADE "qwen3_both_rerank",
    MADE "bert_rerank",
    MADE "roberta_classify",
    MADE "modernbert_rerank",
    MADE "modernbert_relu",
    MADE "roformer_relu",
    MADE "big_bird_relu",
    MADE "qwen3_rerank",
    MADE "distilbert_classify",
    MADE "electra_rerank",
    MADE "albert",
    MADE "albert_classify",
    MADE "mpnet",
    MADE "mpnet_classify",
    MADE "eurobert",
    MADE "llama_bidirec",
    MADE "llama_bidirec_rerank",
    MADE "nomic_bert",
    MADE "nomic_bert_classify",
    MADE "neobert",
    MADE "neobert_classify",
    MADE "gte",
    MADE "gte_rerank",
    MADE "deberta",
    MADE "deberta_classify",
    MADE "deberta_conv",
    MADE "deberta_conv_classify",
    MADE "data2vec",
    MADE "ernie",
    MADE "ernie_classify",
    MADE "rembert",
    MADE "rembert_classify",
    MADE "roformer",
    MADE "roformer_classify",
    MADE "megatron_bert",
    MADE "megatron_bert_classify",
    MADE "xlm_roberta_xl",
    MADE "xlm_roberta_xl_rerank",
    MADE "roberta_prelayernorm",
    MADE "roberta_prelayernorm_classify",
    MADE "jina_v3",
    MADE "jina_v3_rerank",
    MADE "jina_v2",
    MADE "jina_v2_rerank",
    MADE "nomic_moe",
    MADE "esm",
    MADE "esm_1b",
    MADE "esm_classify",
    MADE "xlm",
    MADE "flaubert",
    MADE "flaubert_classify",
    MADE "squeezebert",
    MADE "squeezebert_classify",
    MADE "squeezebert_fill",
    MADE "mobilebert",
    MADE "mobilebert_classify",
    MADE "mobilebert_plain",
    MADE "mobilebert_fill",
    MADE "mobilebert_tokens",
    MADE "mobilebert_answers",
    MADE "xlnet",
    MADE "xlnet_classify",
    MADE "xlnet_mean",
    MADE "xlnet_tokens",
    MADE "convbert",
    MADE "convbert_classify",
    MADE "convbert_tokens",
    MADE "nystromformer",
    MADE "nystromformer_classify",
    MADE "nystromformer_fill",
    MADE "nystromformer_tokens",
    MADE "xmod",
    MADE "xmod_classify",
    MADE "xmod_fill",
    MADE "fnet",
    MADE "fnet_classify",
    MADE "fnet_fill",
    MADE "fnet_tokens",
    MADE "bert_generation",
    MADE "big_bird",
    MADE "big_bird_classify",
    MADE "ibert",
    MADE "luke",
    MADE "ministral3",
    MADE "longformer",
    MADE "ultrabert",
    MADE "ultrabert_listed",
    MADE "deberta_1",
    MADE "deberta_1_classify",
    MADE "splade_bert",
    MADE "splade_bert_sum",
    MADE "splade_distilbert",
    MADE "splade_roberta",
    MADE "splade_mpnet",
    MADE "splade_modernbert",
    MADE "splade_gte",
    MADE "bert_fill",
    MADE "roberta_fill",
    MADE "modernbert_fill",
    MADE "bert_tokens",
    MADE "distilbert_tokens",
    MADE "roberta_tokens",
    MADE "modernbert_tokens",
    MADE "deberta_tokens",
    MADE "qwen2_tokens",
    MADE "bert_answers",
    MADE "roberta_answers",
    MADE "modernbert_answers",
    MADE "flaubert_answers",
    MADE "privacy_filter",
    MADE "colbert",
    MADE "pylate",
    MADE "jina_flash",
    MADE "jina_flash_mean",
    MADE "t5",
    MADE "t5_act",
    MADE "flan_t5",
    MADE "mt5",
    MADE "umt5",
    MADE "bart_classify",
    MADE "bart_rerank",
    MADE "mbart_classify",
    MADE "t5_classify",
    MADE "clip",
    MADE "clip_text",
    MADE "clip_bare",
    MADE "metaclip_2",
};
enum { N_DIRS = sizeof(dirs) / sizeof(dirs[0]), MOST_RANKS = 4 };

static double errors[N_DIRS][MOST_RANKS + 1];

static const char *folder(void **state, struct texts *t, int *which)
{
    static char dir[1024];
    const char *name = *(const char *const *)*state;
    char file[160];
    *which = (int)((const char *const *)*state - dirs);
    snprintf(file, sizeof(file), "%s/golden.json", name);
    const char *path = strncmp(name, MADE, strlen(MADE)) != 0 ? test_data(file)
                       : access(file, F_OK) == 0              ? file
                                                              : NULL;
    if (!path)
        return NULL;
    snprintf(dir, sizeof(dir), "%.*s", (int)(strlen(path) - strlen("/golden.json")), path);
    assert_true(texts_load(t, dir));
    return dir;
}

static struct encode_bench open_or_fail(const char *dir, int threads, struct comm *comm)
{
    struct err e = ERR_INIT;
    struct encode_bench b;
    if (encode_open(&b, dir, threads, comm, &e))
        fail_msg("%s", e.msg);
    return b;
}

/* ---------------------------------------------------------------- the results themselves */

static void agrees_with_transformers(void **state)
{
    struct texts t;
    int which;
    const char *dir = folder(state, &t, &which);
    if (!dir)
        skip();
    struct encode_bench b = open_or_fail(dir, 1, comm_solo());
    const double err = encode_error(&b, &t);
    errors[which][1] = err;
    if (!(err < TOLERANCE))
        fail_msg("%s: off by %g", dir, err);
    encode_close(&b);
    texts_free(&t);
}

/* Hidden states of all tokens, not only of what pooling takes. */
static void gives_hidden_states_of_all_tokens(void **state)
{
    struct texts t;
    int which;
    const char *dir = folder(state, &t, &which);
    if (!dir || !t.text[0].first) {
        if (dir)
            texts_free(&t);
        skip();
    }
    struct encode_bench b = open_or_fail(dir, 2, comm_solo());
    const uint32_t hidden = model_info(b.model)->row_width;
    float *rows = encode_all(&b, &t);
    const float *at = rows;
    for (uint32_t i = 0; i < t.n; i++, at += (size_t)t.text[i - 1].in.n * hidden)
        for (uint32_t k = 0; k < hidden; k++) {
            const size_t last = (size_t)(t.text[i].in.n - 1) * hidden;
            assert_true(fabs(at[k] - t.text[i].first[k]) < HIDDEN_TOLERANCE);
            assert_true(fabs(at[last + k] - t.text[i].last[k]) < HIDDEN_TOLERANCE);
        }
    free(rows);
    encode_close(&b);
    texts_free(&t);
}

/* ---------------------------------------------------------------- bits */

static void is_the_same_alone_and_in_any_batch(void **state)
{
    struct texts t;
    int which;
    const char *dir = folder(state, &t, &which);
    if (!dir)
        skip();
    struct encode_bench b = open_or_fail(dir, 1, comm_solo()),
                        other = open_or_fail(dir, 3, comm_solo());
    float *batch = encode_texts(&b, &t, 0, t.n, false), *turned;
    turned = encode_texts(&other, &t, 0, t.n, true); /* the last text first */
    size_t at = 0, left = 0;
    for (uint32_t i = 0; i < t.n; i++)
        left += text_floats(&b, &t.text[i]);
    for (uint32_t i = 0; i < t.n; i++) {
        const size_t width = text_floats(&b, &t.text[i]);
        float *alone = encode_texts(&other, &t, i, 1, false);
        assert_memory_equal(alone, batch + at, width * sizeof(float));
        free(alone);
        left -= width;
        assert_memory_equal(turned + left, batch + at, width * sizeof(float));
        at += width;
    }
    free(batch), free(turned);
    encode_close(&b), encode_close(&other);
    texts_free(&t);
}

/* The last feed-forward runs on the rows of output alone, which changes no bit of them: of the
 * first rows, of the last ones, behind norms of sums and behind norms before the branches. */
static void a_row_of_output_is_that_row_of_all(void **state)
{
    static const char *const which[] = {"embed/bert_cls", "embed/xlm_roberta_cls",
                                        "embed/qwen3_embedding", MADE "clip"};
    const struct ragged few = {.n_tokens = 64, .n_out = 32}, many = {.n_tokens = 64, .n_out = 33};
    int found = 0;
    (void)state;
    for (int k = 0; k < N_DIRS; k++) {
        void *arg = (void *)&dirs[k];
        struct texts t;
        size_t m = 0;
        int unused;
        while (m < sizeof(which) / sizeof(which[0]) && strcmp(which[m], dirs[k]) != 0)
            m++;
        const char *dir = m < sizeof(which) / sizeof(which[0]) ? folder(&arg, &t, &unused) : NULL;
        if (!dir)
            continue;
        found++;
        struct encode_bench b = open_or_fail(dir, 2, comm_solo());
        const uint32_t width = model_info(b.model)->row_width;
        assert_true(decoder_ends_few(model_decoder(b.model), &few));
        assert_false(decoder_ends_few(model_decoder(b.model), &many));
        float *all = encode_all(&b, &t), *rows = encode_texts(&b, &t, 0, t.n, false);
        const float *at = all;
        for (uint32_t i = 0; i < t.n; at += (size_t)t.text[i++].in.n * width) {
            const size_t row = strstr(dir, "_cls") ? 0 : t.text[i].in.n - 1;
            assert_memory_equal(rows + (size_t)i * width, at + row * width, width * sizeof(float));
        }
        free(all), free(rows);
        encode_close(&b);
        texts_free(&t);
    }
    if (!found)
        skip();
}

/* ---------------------------------------------------------------- ranks */

struct rank_run {
    pthread_t thread;
    const char *dir, *group;
    const struct texts *texts;
    int rank, world;
    double error;
    struct err e;
    bool failed;
};

static void *rank_main(void *arg)
{
    struct rank_run *r = arg;
    struct encode_bench b = {0};
    struct comm *c = comm_shm_open(r->group, r->rank, r->world, 20000, &r->e);
    r->failed = !c || encode_open(&b, r->dir, 1, c, &r->e) != 0;
    if (!r->failed)
        r->error = encode_error(&b, r->texts);
    encode_close(&b);
    if (c)
        comm_close(c);
    return NULL;
}

static void agrees_on_any_number_of_ranks(void **state)
{
    struct texts t;
    int which;
    const char *dir = folder(state, &t, &which);
    if (!dir)
        skip();
    for (int world = 2; world <= MOST_RANKS; world *= 2) {
        struct rank_run ranks[MOST_RANKS];
        char group[64];
        snprintf(group, sizeof(group), "embed-%d-%d-%d", (int)getpid(), which, world);
        for (int i = 0; i < world; i++) {
            ranks[i] = (struct rank_run){
                .dir = dir, .group = group, .texts = &t, .rank = i, .world = world};
            assert_int_equal(pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]), 0);
        }
        for (int i = 0; i < world; i++)
            pthread_join(ranks[i].thread, NULL);
        for (int i = 0; i < world; i++) {
            if (ranks[i].failed)
                fail_msg("%s, rank %d of %d: %s", dir, i, world, ranks[i].e.msg);
            errors[which][world] = fmax(errors[which][world], ranks[i].error);
            assert_true(ranks[i].error < TOLERANCE);
        }
    }
    texts_free(&t);
}

/* Layers share the cache: none may read what another one wrote, and all are of attention. */
static void layers_that_read_others_are_refused(void **state)
{
    static const char *const models[] = {"arch/gemma4_text_ple", "arch/deepseek_v2",
                                         "arch/qwen3_5_text"};
    int found = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        struct err e = ERR_INIT;
        char file[64], dir[1024];
        snprintf(file, sizeof(file), "%s/config.json", models[i]);
        const char *path = test_data(file);
        if (!path)
            continue;
        found++;
        snprintf(dir, sizeof(dir), "%.*s", (int)(strlen(path) - strlen("/config.json")), path);
        const struct device_options o = {.threads = 1, .features = ~0ull};
        struct device *d = backend_cpu.open(&o, &e);
        const struct model_options m = {
            .ops = &backend_cpu, .dev = d, .comm = comm_solo(), .dtype = -1, .task = TASK_EMBED};
        struct model *got = model_load(dir, &m, &e);
        if (got || e.kind != ERR_VALIDATION)
            fail_msg("%s: %s", dir, got ? "loaded" : e.msg);
        backend_cpu.close(d);
    }
    if (!found)
        skip();
}

/* A text with masks would have other factors of its embeddings (ESM's token_dropout). */
static void masks_are_refused(void **state)
{
    static const char dir[] = MADE "esm";
    struct err e = ERR_INIT;
    uint32_t ids[] = {0, 5, 9, 2};
    float out[64];
    (void)state;
    if (access(dir, F_OK))
        skip();
    struct encode_bench b = open_or_fail(dir, 1, comm_solo());
    struct model_text t = {.ids = ids, .n = 4};
    assert_int_equal(model_encode(b.model, &t, 1, false, out, &e), 0);
    ids[2] = 3; /* its mask_token_id */
    assert_int_equal(model_encode(b.model, &t, 1, false, out, &e), -1);
    assert_non_null(strstr(e.msg, "token 3: this family is served without masks"));
    assert_int_equal(e.kind, ERR_VALIDATION);
    encode_close(&b);
}

/* A classifier's decoder reads a text behind its encoder, for its labels alone. */
static void a_decoder_with_an_encoder_gives_no_vectors(void **state)
{
    static const char dir[] = MADE "bart_classify";
    const struct device_options o = {.threads = 1, .features = ~0ull};
    struct err e = ERR_INIT;
    (void)state;
    if (access(dir, F_OK))
        skip();
    struct device *d = backend_cpu.open(&o, &e);
    const struct model_options m = {
        .ops = &backend_cpu, .dev = d, .comm = comm_solo(), .dtype = -1, .task = TASK_EMBED};
    assert_null(model_load(dir, &m, &e));
    assert_non_null(strstr(e.msg, "layer 1 of this bart model is not of plain attention"));
    backend_cpu.close(d);
}

/* For tests/golden/vary/vary_encoders.py: any folder with a golden.json. */
static void a_given_folder_agrees(void **state)
{
    const char *dir = getenv("GOLDEN_FOLDER");
    struct err e = ERR_INIT;
    struct encode_bench b;
    struct texts t;
    (void)state;
    if (!dir)
        skip();
    assert_true(texts_load(&t, dir));
    if (encode_open(&b, dir, 1, comm_solo(), &e))
        fail_msg("refused: %s", e.msg);
    const double err = encode_error(&b, &t);
    if (!(err < TOLERANCE))
        fail_msg("off by %g", err);
    encode_close(&b);
    texts_free(&t);
}

static int print_table(void **state)
{
    (void)state;
    for (int i = 0; getenv("GOLDEN_TABLE") && i < N_DIRS; i++)
        printf("| %s | %.1e | %.1e | %.1e |\n", strrchr(dirs[i], '/') + 1, errors[i][1],
               errors[i][2], errors[i][4]);
    return 0;
}

int main(void)
{
    static void (*const fns[])(void **) = {
        agrees_with_transformers, gives_hidden_states_of_all_tokens,
        is_the_same_alone_and_in_any_batch, agrees_on_any_number_of_ranks};
    static const char *const names[] = {
        "agrees with transformers", "gives hidden states of all tokens",
        "is the same alone and in any batch", "agrees on any number of ranks"};
    enum { N_FNS = sizeof(fns) / sizeof(fns[0]) };
    static struct CMUnitTest tests[N_FNS * N_DIRS + 5];
    static char text[N_FNS * N_DIRS][120];
    for (size_t i = 0; i < N_FNS * N_DIRS; i++) {
        snprintf(text[i], sizeof(text[i]), "%s: %s", dirs[i % N_DIRS], names[i / N_DIRS]);
        tests[i] = (struct CMUnitTest){.name = text[i],
                                       .test_func = fns[i / N_DIRS],
                                       .initial_state = (void *)&dirs[i % N_DIRS]};
    }
    tests[N_FNS * N_DIRS] =
        (struct CMUnitTest)cmocka_unit_test(layers_that_read_others_are_refused);
    tests[N_FNS * N_DIRS + 1] = (struct CMUnitTest)cmocka_unit_test(masks_are_refused);
    tests[N_FNS * N_DIRS + 2] =
        (struct CMUnitTest)cmocka_unit_test(a_decoder_with_an_encoder_gives_no_vectors);
    tests[N_FNS * N_DIRS + 3] =
        (struct CMUnitTest)cmocka_unit_test(a_row_of_output_is_that_row_of_all);
    tests[N_FNS * N_DIRS + 4] = (struct CMUnitTest)cmocka_unit_test(a_given_folder_agrees);
    return cmocka_run_group_tests(tests, NULL, print_table);
}
