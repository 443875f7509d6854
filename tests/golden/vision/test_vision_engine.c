/* test_vision_engine.c - requests with pictures through the engine: the tokens that transformers
 * choose, in chunks, together, from a cached prefix, with features that were kept and that were
 * not; and what is refused. */
#include "model-server/engine/engine.h"
#include "tests/golden/vision/sight.h"

enum { MOST_CASES = 16, NEW = 12, BLOCK = 16, PER_SEQ = 24 };

/* One of each kind: windows and three positions, deepstack, recurrent state, blocks both ways,
 * tiles, row ends between features, prompts both ways, blocks that windows cut, embeddings of each
 * layer, layers that attend to pictures, crops of several sizes, a resampler, patches without a
 * feature, layers side by side, a model of several, convolutions, windows, two towers in turn,
 * visual words, queries, two towers side by side, slices on a canvas, gated convolutions, experts
 * of pictures, vectors around features. */
static const char *const some[] = {
    "qwen2_5_vl", "qwen3_vl",    "qwen3_5",     "gemma3",         "llava_next",   "idefics3",
    "pixtral",    "paligemma2",  "gemma4",      "gemma4_e",       "mllama",       "glm4v",
    "lfm2_vl",    "idefics2",    "lighton_ocr", "granite_vision", "qwen2_5_omni", "gemma3n",
    "got_ocr2",   "minicpmv4_6", "ovis2",       "deepseek_ocr2",  "deepseek_ocr", "minicpmv4_7",
    "lfm3_vl",    "ernie4_5_vl", "ovis2_5"};
enum { N_SOME = sizeof(some) / sizeof(some[0]) };

/* ---------------------------------------------------------------- an engine that sees */

struct rig {
    struct sight s;
    struct tokenizer *tok;
    struct engine *engine;
    cJSON *golden;
    const cJSON *cases[MOST_CASES];
    uint32_t n_cases;
};

static void open_rig(struct rig *r, const char *name, uint32_t most_chunk)
{
    static const uint32_t ids[] = {5, 6, 7, 8};
    struct seq_spec spec = {.prompt = ids, .n_prompt = 4, .sampling = sampling_neutral()};
    struct warmup w = {.specs = &spec,
                       .n = 1,
                       .max_prefill_tokens = 2048,
                       .max_chunk_tokens = most_chunk,
                       .max_input_tokens = 1024,
                       .max_total_tokens = 1100};
    char dir[PATH_LEN];
    const cJSON *c;
    memset(r, 0, sizeof(*r));
    const char *words = vision_is_made(name) ? "gemma3" : name; /* those have no tokenizer */
    path_of(dir, name, NULL);
    if (sight_open(&r->s, dir, comm_solo()) || !path_of(dir, words, NULL) ||
        !(r->tok = tokenizer_load(dir, &r->s.e)))
        fail_msg("%s", r->s.e.msg);
    const struct engine_options o = {.model = r->s.b.model,
                                     .tok = r->tok,
                                     .ops = r->s.b.ops,
                                     .dev = r->s.b.dev,
                                     .comm = comm_solo(),
                                     .block_size = BLOCK,
                                     .kv_dtype = KV_F32,
                                     .pictures = r->s.pictures,
                                     .memory_fraction = 1,
                                     .kv_limit = 16 << 20};
    r->engine = engine_new(&o, &r->s.e);
    if (!r->engine || engine_warmup(r->engine, &w, &r->s.e))
        fail_msg("%s", r->s.e.msg);
    r->golden = sight_golden(name);
    cJSON_ArrayForEach(c, json_get(r->golden, "cases"))
    {
        if (cJSON_GetArraySize(json_get(c, "ids")) && r->n_cases < MOST_CASES)
            r->cases[r->n_cases++] = c;
    }
}

static void close_rig(struct rig *r)
{
    engine_free(r->engine);
    tokenizer_free(r->tok);
    sight_close(&r->s);
    cJSON_Delete(r->golden);
}

/* ---------------------------------------------------------------- requests */

struct ask {
    uint32_t ids[MAX_LEN], n, blocks[PER_SEQ];
    struct media_spec media[SIGHT_MOST_IMAGES];
    uint32_t n_media;
    uint32_t got[NEW], n_got;
    const cJSON *c;
};

/* Case `nth` as request `id`, whose blocks are its own. */
static struct seq_spec ask_of(struct rig *r, struct ask *a, uint32_t nth, uint32_t id)
{
    memset(a, 0, sizeof(*a));
    a->c = r->cases[nth];
    a->n = golden_ids(json_get(a->c, "ids"), a->ids);
    if (sight_specs(&r->s, a->c, a->ids, a->n, a->media, &a->n_media))
        fail_msg("%s", r->s.e.msg);
    for (uint32_t i = 0; i < PER_SEQ; i++)
        a->blocks[i] = id * PER_SEQ + i;
    return (struct seq_spec){.id = id,
                             .prompt = a->ids,
                             .n_prompt = a->n,
                             .blocks = a->blocks,
                             .n_blocks = (a->n + NEW + BLOCK - 1) / BLOCK,
                             .media = a->media,
                             .n_media = a->n_media,
                             .max_new_tokens = NEW,
                             .ignore_eos = true,
                             .sampling = sampling_neutral()};
}

static void take(struct ask *asks, const struct answer *a)
{
    for (uint32_t i = 0; i < a->out->n_gen; i++) {
        const struct gen *g = &a->out->gen[i];
        struct ask *k = &asks[g->seq->id];
        assert_string_equal(g->seq->error, "");
        assert_true(k->n_got < NEW);
        k->got[k->n_got++] = g->token.id;
    }
}

static void check(struct ask *k, const char *how)
{
    uint32_t want[MAX_LEN];
    assert_int_equal(golden_ids(json_get(k->c, "greedy_ids"), want), NEW);
    if (k->n_got != NEW || memcmp(k->got, want, sizeof(k->got)) != 0)
        fail_msg("%s: other tokens (%u)", how, k->n_got);
    sight_free_specs(k->media, k->n_media);
}

/* All of them in one batch, to their ends. */
static void generate(struct rig *r, struct ask *asks, const struct seq_spec *specs, uint32_t n,
                     const char *how)
{
    const uint64_t batch = 1;
    struct answer a;
    struct err *e = &r->s.e;
    if (engine_prefill(r->engine, batch, specs, n, NULL, NULL, &a, e))
        fail_msg("%s: %s", how, e->msg);
    take(asks, &a);
    while (a.batch) {
        if (engine_ahead(r->engine, e) || engine_decode(r->engine, &batch, 1, NULL, &a, e))
            fail_msg("%s: %s", how, e->msg);
        take(asks, &a);
    }
    for (uint32_t i = 0; i < n; i++)
        check(&asks[specs[i].id], how);
}

/* ---------------------------------------------------------------- tests */

static void one_after_the_other(struct rig *r, uint32_t chunk, const char *how)
{
    static struct ask asks[1];
    for (uint32_t i = 0; i < r->n_cases; i++) {
        struct seq_spec s = ask_of(r, &asks[0], i, 0);
        s.chunk_len = chunk;
        generate(r, asks, &s, 1, how);
    }
}

static void tokens_are_those_of_transformers(void **state)
{
    (void)state;
    for (int i = 0; i < N_SOME; i++) {
        struct rig r;
        open_rig(&r, some[i], 0);
        one_after_the_other(&r, 0, some[i]);
        const struct pictures_stats t = pictures_stats(r.s.pictures);
        assert_true(t.encoded > 0 && t.hits > 0); /* two cases show the same picture */
        close_rig(&r);
        open_rig(&r, some[i], 9); /* chunks of 9 */
        one_after_the_other(&r, 5, some[i]);
        close_rig(&r);
    }
}

static void together_as_alone(void **state)
{
    (void)state;
    for (int i = 0; i < N_SOME; i++) {
        static struct ask asks[MOST_CASES];
        struct seq_spec specs[MOST_CASES];
        struct rig r;
        open_rig(&r, some[i], 0);
        for (uint32_t k = 0; k < r.n_cases; k++)
            specs[k] = ask_of(&r, &asks[k], k, k);
        generate(&r, asks, specs, r.n_cases, some[i]);
        close_rig(&r);
    }
}

/* A prompt whose beginning is cached, as far as it goes in whole blocks: a request goes on from its
 * predecessor's. With recurrent state there is no such thing without its state. */
static void from_a_cached_prefix(void **state)
{
    (void)state;
    for (int i = 0; i < N_SOME; i++) {
        static struct ask asks[1];
        struct rig r;
        open_rig(&r, some[i], 0);
        for (uint32_t k = 1; k < r.n_cases && !model_info(r.s.b.model)->state_bytes; k++)
            for (uint32_t cached = 0; cached < 2 * BLOCK + 1; cached += BLOCK) {
                struct seq_spec s = ask_of(&r, &asks[0], k, 0);
                s.cache_len = cached < s.n_prompt ? cached : 0;
                generate(&r, asks, &s, 1, some[i]);
            }
        close_rig(&r);
    }
}

/* Prompt and picture behind each other in the cache: nothing is decoded, nothing encoded. */
static void a_cached_picture_costs_nothing(void **state)
{
    static struct ask asks[1];
    struct rig r;
    (void)state;
    open_rig(&r, "qwen3_vl", 0);
    struct seq_spec s = ask_of(&r, &asks[0], 1, 0);
    generate(&r, asks, &s, 1, "first");
    const uint64_t encoded = pictures_stats(r.s.pictures).encoded;
    s = ask_of(&r, &asks[0], 1, 0);
    s.cache_len = s.n_prompt - 1; /* of the block before the last, by the rules of the router */
    generate(&r, asks, &s, 1, "cached");
    assert_int_equal(pictures_stats(r.s.pictures).encoded, encoded);
    assert_int_equal(pictures_stats(r.s.pictures).hits, 0);
    close_rig(&r);
}

/* Log-probabilities of a prompt with pictures, in one chunk and in several: those of its texts are
 * the same, and so is what follows. */
static void log_probabilities_of_prompts(void **state)
{
    static struct ask asks[1];
    static float want[MAX_LEN];
    (void)state;
    for (int i = 0; i < N_SOME; i++)
        for (uint32_t chunk = 0; chunk < 14; chunk += 13) {
            struct rig r;
            struct answer a;
            open_rig(&r, some[i], chunk);
            struct seq_spec s = ask_of(&r, &asks[0], 1, 0);
            const uint64_t batch = 1;
            s.prefill_logprobs = true;
            s.chunk_len = chunk;
            int rc = engine_prefill(r.engine, batch, &s, 1, NULL, NULL, &a, &r.s.e);
            while (rc == 0 && !a.out->n_gen)
                rc = engine_decode(r.engine, &batch, 1, NULL, &a, &r.s.e);
            assert_int_equal(rc, 0);
            const struct seq *q = a.out->gen[0].seq;
            assert_non_null(q->prompt_logprob);
            for (uint32_t k = 1; k < s.n_prompt; k++)
                if (chunk && !(isnan(want[k]) && isnan(q->prompt_logprob[k])))
                    assert_memory_equal(&want[k], &q->prompt_logprob[k], sizeof(float));
            memcpy(want, q->prompt_logprob, s.n_prompt * sizeof(*want));
            assert_false(isnan(want[s.n_prompt - 1]));
            sight_free_specs(asks[0].media, asks[0].n_media);
            close_rig(&r);
        }
}

/* Without room for any, features live as long as a prompt needs them. */
static void features_leave_when_there_are_too_many(void **state)
{
    static struct ask asks[1];
    struct rig r;
    (void)state;
    open_rig(&r, "qwen3_vl", 0);
    struct pictures_options o = {.vision = r.s.vision,
                                 .tower = r.s.tower,
                                 .decode = decode_here,
                                 .ops = r.s.b.ops,
                                 .dev = r.s.b.dev};
    struct pictures *p = pictures_new(&o, &r.s.e);
    struct seq_spec s = ask_of(&r, &asks[0], 8, 0);
    struct media *m = media_new(p, s.media, s.n_media, s.prompt, s.n_prompt, 0, &r.s.e);
    assert_non_null(m);
    media_want(m, 0, s.n_prompt);
    assert_int_equal(pictures_encode(p, 0, &(uint64_t){0}, &r.s.e), 0);
    assert_int_equal(pictures_stats(p).kept, 2);
    media_release(m, s.media[1].position);
    assert_int_equal(pictures_stats(p).kept, 1);
    assert_non_null(media_token(m, s.media[1].position).row);
    media_free(m);
    assert_int_equal(pictures_stats(p).kept, 0);
    assert_int_equal(pictures_stats(p).bytes, 0);
    pictures_free(p);
    sight_free_specs(asks[0].media, asks[0].n_media);
    close_rig(&r);
}

static void refused(struct rig *r, const struct seq_spec *s, const char *why)
{
    struct answer a;
    assert_int_equal(engine_prefill(r->engine, 1, s, 1, NULL, NULL, &a, &r->s.e), 0);
    assert_int_equal(a.out->n_gen, 1);
    if (!strstr(a.out->gen[0].seq->error, why))
        fail_msg("`%s` instead of `%s`", a.out->gen[0].seq->error, why);
    engine_clear(r->engine, NULL);
}

/* Layers that attend to pictures: there is room for the keys and values of one picture. Who comes
 * later waits without any, and then gets the same tokens. */
static void pictures_wait_for_room(void **state)
{
    static struct ask asks[MOST_CASES];
    struct seq_spec specs[2];
    struct rig r;
    (void)state;
    open_rig(&r, "mllama", 0);
    const uint32_t most = pictures_shown_most(r.s.pictures);
    assert_int_equal(pictures_reserve_shown(r.s.pictures, most, KV_F32, &r.s.e), 0);
    specs[0] = ask_of(&r, &asks[1], 1, 1);
    specs[1] = ask_of(&r, &asks[2], 2, 2);
    generate(&r, asks, specs, 2, "one after the other");
    assert_int_equal(pictures_stats(r.s.pictures).encoded, 2);
    specs[0] = ask_of(&r, &asks[1], 1, 1); /* its place was taken */
    generate(&r, asks, specs, 1, "again");
    assert_int_equal(pictures_stats(r.s.pictures).encoded, 3);
    specs[0] = ask_of(&r, &asks[1], 1, 1);
    specs[1] = ask_of(&r, &asks[2], 2, 2);
    specs[1].cache_len = specs[1].n_prompt - 1; /* all that it waits for is its pictures */
    generate(&r, asks, specs, 2, "a cached prompt that waits");
    assert_int_equal(pictures_stats(r.s.pictures).encoded, 4);
    assert_int_equal(pictures_stats(r.s.pictures).kept, 0); /* no features beside keys */
    close_rig(&r);
}

/* The same picture in two prompts is there once; a request whose pictures can never fit is refused.
 */
static void prompts_share_what_pictures_take(void **state)
{
    static struct ask asks[MOST_CASES];
    struct seq_spec specs[2];
    struct rig r;
    (void)state;
    open_rig(&r, "mllama", 0);
    const uint32_t most = pictures_shown_most(r.s.pictures);
    assert_int_equal(pictures_reserve_shown(r.s.pictures, most, KV_F32, &r.s.e), 0);
    specs[0] = ask_of(&r, &asks[1], 1, 1);
    specs[1] = ask_of(&r, &asks[4], 4, 4);
    generate(&r, asks, specs, 2, "together");
    assert_int_equal(pictures_stats(r.s.pictures).encoded, 1);
    specs[0] = ask_of(&r, &asks[3], 3, 3);
    refused(&r, &specs[0], "there is memory for");
    sight_free_specs(asks[3].media, asks[3].n_media);
    close_rig(&r);
}

static void what_is_wrong_with_a_picture_is_said(void **state)
{
    static struct ask asks[1];
    struct rig r;
    size_t n = 0;
    char path[PATH_LEN];
    (void)state;
    open_rig(&r, "qwen3_vl", 0);
    struct seq_spec s = ask_of(&r, &asks[0], 1, 0);
    struct media_spec *m = &asks[0].media[0];
    const struct media_spec good = *m;
    m->n_bytes = 60;
    refused(&r, &s, "broken");
    *m = good;
    m->tokens--;
    refused(&r, &s, "tokens in the prompt");
    m->tokens = s.n_prompt;
    refused(&r, &s, "cannot stand at");
    *m = good;
    m->position = UINT32_MAX;
    refused(&r, &s, "cannot stand at");
    *m = good;
    char *bomb = read_all(path_of(path, "images", "bad_bomb_60000x60000.png"), &n);
    m->bytes = bomb, m->n_bytes = n;
    refused(&r, &s, "60000");
    free(bomb);
    *m = good;
    sight_free_specs(asks[0].media, asks[0].n_media);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_those_of_transformers),
        cmocka_unit_test(together_as_alone),
        cmocka_unit_test(from_a_cached_prefix),
        cmocka_unit_test(log_probabilities_of_prompts),
        cmocka_unit_test(a_cached_picture_costs_nothing),
        cmocka_unit_test(features_leave_when_there_are_too_many),
        cmocka_unit_test(pictures_wait_for_room),
        cmocka_unit_test(prompts_share_what_pictures_take),
        cmocka_unit_test(what_is_wrong_with_a_picture_is_said),
    };
    if (!test_data("vision/README.md")) {
        TEST_SKIPPED(N_SOME, "no vision under TEST_DATA");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
