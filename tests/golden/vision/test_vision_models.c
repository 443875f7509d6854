/* test_vision_models.c - models that see: pictures from the file to features and logits against
 * transformers' (TEST_DATA/vision), by one rank and by two; and the promise that bits do not depend
 * on chunks or company. */
#include "tests/golden/vision/look.h"
#include <pthread.h>
#include <unistd.h>

/* ---------------------------------------------------------------- against the expectations */

struct finding {
    double features, logits;
    uint32_t greedy, greedy_right, cases;
};

static double row_error(const cJSON *want, const float *row)
{
    const cJSON *x;
    double worst = 0;
    cJSON_ArrayForEach(x, want) worst = larger(worst, *row++ - x->valuedouble);
    return worst;
}

/* Part `level` of the rows: 0 the embeddings, then deepstack's. */
static double rows_error(const struct look *k, const cJSON *want, uint32_t level, uint32_t hidden)
{
    const cJSON *norm = json_get(want, "norms")->child;
    const uint32_t n = (uint32_t)cJSON_GetArraySize(json_get(want, "norms"));
    double worst = 0;
    uint32_t nth = 0, at = 0;
    for (const float *row; norm && (row = look_row(k, nth, &at));) {
        double sum = 0;
        row += (size_t)level * hidden;
        for (uint32_t c = 0; c < hidden; c++)
            sum += (double)row[c] * row[c];
        worst = larger(worst, sqrt(sum) - norm->valuedouble);
        const char *name = nth == 0 ? "first" : nth == n / 2 ? "middle" : NULL;
        if (name)
            worst = larger(worst, row_error(json_get(want, name), row));
        if (nth == n - 1)
            worst = larger(worst, row_error(json_get(want, "last"), row));
        norm = norm->next;
        nth++;
    }
    return nth == n ? worst : INFINITY;
}

static void judge_features(struct finding *f, const struct sight *s, const struct look *k,
                           const cJSON *c)
{
    const uint32_t hidden = model_info(s->b.model)->hidden;
    const cJSON *level;
    uint32_t i = 1;
    if (k->media->pictures->crosses && !k->media->of[0]->rows)
        return; /* an earlier case's keys and values serve: there was nothing to encode */
    f->features = larger(f->features, rows_error(k, json_get(c, "features"), 0, hidden));
    cJSON_ArrayForEach(level, json_get(c, "deepstack")) f->features =
        larger(f->features, rows_error(k, level, i++, hidden));
}

static int judge_case(struct sight *s, const cJSON *c, struct finding *f)
{
    struct look k;
    const cJSON *x;
    uint32_t i = 0;
    int rc = look_open(&k, s, c, 0);
    struct look *one = &k;
    if (rc == 0)
        rc = look_prefill(s, &k, k.n);
    if (rc == 0 && k.media)
        judge_features(f, s, &k, c);
    cJSON_ArrayForEach(x, json_get(c, "last_logits")) if (rc == 0) f->logits =
        larger(f->logits, k.last[i++] - x->valuedouble);
    cJSON_ArrayForEach(x, json_get(c, "greedy_ids"))
    {
        if (rc)
            break;
        f->greedy++;
        f->greedy_right += argmax(k.last, s->b.vocab) == (uint32_t)x->valuedouble;
        k.ids[k.n++] = (uint32_t)x->valuedouble;
        rc = look_step(s, &one, &(uint32_t){1}, 1);
    }
    f->cases++;
    look_close(&k);
    return rc;
}

struct rank_of {
    pthread_t thread;
    const char *dir, *group;
    const cJSON *golden;
    int rank, world, rc;
    struct finding found;
    struct err e;
};

static void *judge_rank(void *arg)
{
    struct rank_of *r = arg;
    struct sight s;
    const cJSON *c;
    struct comm *comm =
        r->world > 1 ? comm_shm_open(r->group, r->rank, r->world, 20000, &r->e) : comm_solo();
    r->rc = comm ? sight_open(&s, r->dir, comm) : -1;
    cJSON_ArrayForEach(c, json_get(r->golden, "cases"))
    {
        if (r->rc == 0 && cJSON_GetArraySize(json_get(c, "ids")))
            r->rc = judge_case(&s, c, &r->found);
    }
    if (comm) {
        if (r->rc)
            r->e = s.e;
        sight_close(&s);
        comm_close(comm);
    }
    return NULL;
}

enum { MOST_RANKS = 4 };
static void judge_family(const char *name, int world)
{
    struct rank_of ranks[MOST_RANKS];
    char dir[PATH_LEN], group[64];
    path_of(dir, name, NULL);
    snprintf(group, sizeof(group), "vision-%d", (int)getpid());
    cJSON *golden = sight_golden(name);
    for (int i = 0; i < world; i++) {
        ranks[i] = (struct rank_of){
            .dir = dir, .group = group, .golden = golden, .rank = i, .world = world};
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, judge_rank, &ranks[i]), 0);
    }
    for (int i = 0; i < world; i++)
        assert_int_equal(pthread_join(ranks[i].thread, NULL), 0);
    for (int i = 0; i < world; i++) {
        const struct finding *f = &ranks[i].found;
        if (ranks[i].rc)
            fail_msg("%s, rank %d of %d: %s", name, i, world, ranks[i].e.msg);
        print_message(
            "# %s, rank %d of %d: %u cases, features %.1e, logits %.1e, greedy %u of %u\n", name, i,
            world, f->cases, f->features, f->logits, f->greedy_right, f->greedy);
        if (!(f->features < 1e-4 && f->logits < 1e-3) || f->greedy_right != f->greedy)
            fail_msg("%s is wrong", name);
    }
    cJSON_Delete(golden);
}

static void judge_alone(const char *name) { judge_family(name, 1); }
static void judge_pair(const char *name) { judge_family(name, 2); }

static void models_see_what_transformers_see(void **state)
{
    (void)state;
    sight_each(judge_alone);
}

static void two_ranks_see_the_same(void **state)
{
    (void)state;
    sight_each(judge_pair);
}

/* More ranks than key-value heads; experts of pictures whose parts have three rows. */
static void four_ranks_see_the_same(void **state)
{
    static const char *const names[] = {"ernie4_5_vl", "ernie4_5_vl_hub", "ovis2_5",
                                        "step3_vl",    "interns1",        "keye1_5"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        judge_family(names[i], MOST_RANKS);
}

/* ---------------------------------------------------------------- rounded products */

static double largest_norm(const cJSON *c)
{
    const cJSON *x;
    double most = 0;
    cJSON_ArrayForEach(x, json_get(json_get(c, "features"), "norms")) most =
        x->valuedouble > most ? x->valuedouble : most;
    return most;
}

/* Features of products that round to 16 bits, and of attention that does: heads have zeros behind
 * them then. Largest errors relative to the largest norm; CUDA's, which rounds likewise, are 0.023.
 */
static void judge_rounded(const char *name)
{
    char dir[PATH_LEN];
    struct sight s;
    const cJSON *c;
    cJSON *golden = sight_golden(name);
    path_of(dir, name, NULL);
    if (sight_open_as(&s, &backend_cpu, dir, comm_solo(), true))
        fail_msg("%s: %s", name, s.e.msg);
    double worst = 0;
    cJSON_ArrayForEach(c, json_get(golden, "cases"))
    {
        struct finding f = {0};
        struct look k;
        if (!cJSON_GetArraySize(json_get(c, "ids")) || largest_norm(c) == 0)
            continue;
        if (look_open(&k, &s, c, 0) || look_prefill(&s, &k, k.n))
            fail_msg("%s: %s", name, s.e.msg);
        judge_features(&f, &s, &k, c);
        worst = larger(worst, f.features / largest_norm(c));
        look_close(&k);
    }
    print_message("# %s, rounded: features %.4f of the norm\n", name, worst);
    if (!(worst < 0.05))
        fail_msg("%s is wrong with rounded products", name);
    sight_close(&s);
    cJSON_Delete(golden);
}

static void rounded_products_change_little(void **state)
{
    (void)state;
    sight_each(judge_rounded);
}

/* ---------------------------------------------------------------- invariance */

/* The case of most tokens that two pictures have, else one. */
static const cJSON *longest_case(const cJSON *golden)
{
    const cJSON *c, *best = NULL;
    cJSON_ArrayForEach(c, json_get(golden, "cases"))
    {
        const int n = cJSON_GetArraySize(json_get(c, "ids"));
        if (!best || n > cJSON_GetArraySize(json_get(best, "ids")))
            best = c;
    }
    return best;
}

static void check_bits(const struct sight *s, const struct look *k, const float *want,
                       const char *name, const char *how)
{
    if (memcmp(k->last, want, s->b.vocab * sizeof(float)) != 0)
        fail_msg("%s: %s gives other bits", name, how);
}

static void same_in_company(struct sight *s, struct look *k, const cJSON *golden, const float *want,
                            const char *name)
{
    struct look text, other;
    const cJSON *cases = json_get(golden, "cases");
    assert_int_equal(look_open(&text, s, cases->child, SEQ_BLOCKS), 0);
    assert_int_equal(look_open(&other, s, cases->child->next, 2 * SEQ_BLOCKS), 0);
    struct look *const all[] = {&text, k, &other};
    float *alone = malloc(s->b.vocab * sizeof(float));
    assert_int_equal(look_prefill(s, &text, text.n), 0);
    memcpy(alone, text.last, s->b.vocab * sizeof(float));
    look_again(&text);
    look_again(k);
    assert_int_equal(look_step(s, all, (uint32_t[]){text.n, k->n, other.n}, 3), 0);
    check_bits(s, k, want, name, "company");
    check_bits(s, &text, alone, name, "pictures beside a text");
    free(alone);
    look_close(&text);
    look_close(&other);
}

/* Pictures that are encoded in parts, of `most` operations each. */
static void same_in_parts(struct sight *s, const char *dir, const cJSON *golden, const float *want,
                          const char *name, uint64_t most)
{
    struct sight fresh; /* keeps no features */
    struct look k;
    if (sight_open(&fresh, dir, comm_solo()) || look_open(&k, &fresh, longest_case(golden), 0))
        fail_msg("%s: %s", name, fresh.e.msg);
    look_encode_most = most;
    assert_int_equal(look_prefill(&fresh, &k, k.n), 0);
    look_encode_most = 0;
    check_bits(s, &k, want, name, "a picture in parts");
    look_close(&k);
    sight_close(&fresh);
}

static void same_however_it_comes(const char *name)
{
    static const uint32_t chunks[] = {1, 7, 16, 33};
    char dir[PATH_LEN];
    struct sight s;
    struct look k;
    path_of(dir, name, NULL);
    cJSON *golden = sight_golden(name);
    if (sight_open(&s, dir, comm_solo()) || look_open(&k, &s, longest_case(golden), 0) ||
        look_prefill(&s, &k, k.n))
        fail_msg("%s: %s", name, s.e.msg);
    float *want = malloc(s.b.vocab * sizeof(float));
    memcpy(want, k.last, s.b.vocab * sizeof(float));
    for (int i = 0; i < 4; i++) {
        look_again(&k);
        assert_int_equal(look_prefill(&s, &k, chunks[i]), 0);
        check_bits(&s, &k, want, name, "a prompt in chunks");
    }
    same_in_company(&s, &k, golden, want, name);
    same_in_parts(&s, dir, golden, want, name, 1);
    same_in_parts(&s, dir, golden, want, name, 3000000);
    free(want);
    look_close(&k);
    sight_close(&s);
    cJSON_Delete(golden);
}

static void bits_do_not_depend_on_chunks_or_company(void **state)
{
    (void)state;
    sight_each(same_however_it_comes);
}

/* ---------------------------------------------------------------- files that say what cannot be */

/* A copy of the model in which the number `tensor` has other bytes. */
static void with_other_number(const char *name, const char *tensor, const uint8_t bytes[2],
                              char dir[PATH_LEN])
{
    static const char *const files[] = {"config.json", "preprocessor_config.json",
                                        "model.safetensors"};
    snprintf(dir, PATH_LEN, "/tmp/vision-models-XXXXXX");
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 3; i++) {
        char from[PATH_LEN], to[2 * PATH_LEN];
        size_t n = 0;
        char *all = read_all(path_of(from, name, files[i]), &n);
        assert_non_null(all);
        char *at = i == 2 ? memmem(all, n, tensor, strlen(tensor)) : NULL;
        if (i == 2) { /* "data_offsets":[begin,end] behind the header */
            assert_non_null(at);
            at = strstr(at, "data_offsets");
            uint64_t header;
            memcpy(&header, all, sizeof(header));
            const size_t first = strtoul(strchr(at, '[') + 1, NULL, 10);
            assert_true(sizeof(header) + header + first + 2 <= n);
            memcpy(all + sizeof(header) + header + first, bytes, 2);
        }
        snprintf(to, sizeof(to), "%s/%s", dir, files[i]);
        FILE *f = fopen(to, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(all, 1, n, f), n);
        fclose(f);
        free(all);
    }
}

static void remove_copy(const char *dir)
{
    static const char *const files[] = {"config.json", "preprocessor_config.json",
                                        "model.safetensors"};
    char path[2 * PATH_LEN];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
        unlink(path);
    }
    rmdir(dir);
}

/* q, k and v are one product here: bounds of their input that differ are refused by name. */
static void bounds_of_one_input_must_be_the_same(void **state)
{
    char dir[PATH_LEN];
    struct sight s;
    (void)state;
    with_other_number("gemma4_e",
                      "model.vision_tower.encoder.layers.1.self_attn.k_proj.input_max\"",
                      (const uint8_t[]){0x00, 0x40} /* 2 in bfloat16 */, dir);
    assert_int_equal(sight_open(&s, dir, comm_solo()), -1);
    assert_non_null(strstr(s.e.msg, "layer 1"));
    assert_non_null(strstr(s.e.msg, "clip"));
    sight_close(&s);
    remove_copy(dir);
}

/* As many placeholders as features, but one of a frame's stands in the text before it. */
static void a_frame_is_one_run(void **state)
{
    struct sight s;
    struct media_spec specs[SIGHT_MOST_IMAGES];
    uint32_t ids[MOST_TOKENS], n_specs, runs = 0;
    char dir[PATH_LEN];
    (void)state;
    path_of(dir, "qwen3_vl_video", NULL);
    cJSON *golden = sight_golden("qwen3_vl_video");
    const cJSON *c = cJSON_GetArrayItem(json_get(golden, "cases"), 1);
    const uint32_t n = golden_ids(json_get(c, "ids"), ids);
    assert_int_equal(sight_open(&s, dir, comm_solo()), 0);
    assert_int_equal(sight_specs(&s, c, ids, n, specs, &n_specs), 0);
    const uint32_t token = vision_video_token(s.vision);
    for (uint32_t i = 1; i < n; i++) /* the second frame's first, and the token before it */
        if (ids[i] == token && ids[i - 1] != token && ++runs == 2) {
            ids[i - 2] = token;
            ids[i] = ids[i - 1];
            break;
        }
    assert_int_equal(runs, 2);
    assert_null(media_new(s.pictures, specs, n_specs, ids, n, 0, &s.e));
    assert_int_equal(s.e.kind, ERR_VALIDATION);
    assert_non_null(strstr(s.e.msg, "a frame of "));
    sight_free_specs(specs, n_specs);
    sight_close(&s);
    cJSON_Delete(golden);
}

/* Whether a newline belongs to an image is known of the prompt's tokens only, not of an answer's.
 */
static void text_follows_an_image_on_a_canvas(void **state)
{
    struct sight s;
    struct media_spec specs[SIGHT_MOST_IMAGES];
    uint32_t ids[MOST_TOKENS], n_specs;
    char dir[PATH_LEN];
    (void)state;
    path_of(dir, "minicpmv4_7", NULL);
    cJSON *golden = sight_golden("minicpmv4_7");
    const cJSON *c = cJSON_GetArrayItem(json_get(golden, "cases"), 1);
    const uint32_t n = golden_ids(json_get(c, "ids"), ids);
    assert_int_equal(sight_open(&s, dir, comm_solo()), 0);
    assert_int_equal(sight_specs(&s, c, ids, n, specs, &n_specs), 0);
    /* five tokens of text are behind the slice's end and a newline, which belong to the image */
    for (uint32_t left = n - 7; left <= n - 5; left++) {
        assert_null(media_new(s.pictures, specs, n_specs, ids, left, 0, &s.e));
        assert_int_equal(s.e.kind, ERR_VALIDATION);
        assert_non_null(strstr(s.e.msg, "text must follow"));
    }
    struct media *m = media_new(s.pictures, specs, n_specs, ids, n - 4, 0, &s.e);
    assert_non_null(m);
    media_free(m);
    sight_free_specs(specs, n_specs);
    sight_close(&s);
    cJSON_Delete(golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_see_what_transformers_see),
        cmocka_unit_test(two_ranks_see_the_same),
        cmocka_unit_test(four_ranks_see_the_same),
        cmocka_unit_test(rounded_products_change_little),
        cmocka_unit_test(bits_do_not_depend_on_chunks_or_company),
        cmocka_unit_test(bounds_of_one_input_must_be_the_same),
        cmocka_unit_test(a_frame_is_one_run),
        cmocka_unit_test(text_follows_an_image_on_a_canvas),
    };
    if (!test_data("vision/README.md")) {
        TEST_SKIPPED(N_GIVEN, "no vision under TEST_DATA");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
