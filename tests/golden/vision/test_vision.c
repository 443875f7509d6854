/* Plans, placeholders, positions and pixels of TEST_DATA/vision against transformers and Pillow:
 * every number to the bit. */
#include "common/tokenizer/tokenizer.h"
#include "model-server/encoder/pixels.h"
#include "model-server/encoder/resample.h"
#include "tests/golden/vision/vision_hub.h"

static const struct vision_hub families[] = {
    {"qwen2_5_vl"},
    {"qwen3_vl"},
    {"qwen3_5"},
    {"qwen3_5_moe"},
    {"gemma3", .image_size = 896, .tokens = 256},
    {"llava_next", .image_size = 336},
    {"idefics3", .image_size = 364},
    {"smolvlm", .image_size = 512, .patch_size = 16, .scale = 4},
    {"mistral3"},
    {"pixtral"}};
enum { N_FAMILIES = sizeof(families) / sizeof(families[0]), MAX_PICTURES = 4 };

/* ---------------------------------------------------------------- resizing */

static void resized_pictures_have_pillows_digests(void **state)
{
    static const char *const filters[] = {"bilinear", "bicubic", "lanczos"};
    cJSON *all = vision_json("images", "resize.json");
    const cJSON *c;
    (void)state;
    if (!all)
        TEST_SKIPPED(51, "no vision/images in TEST_DATA");
    cJSON_ArrayForEach(c, all)
    {
        struct image p;
        struct resample r;
        struct err e = ERR_INIT;
        const uint32_t w = (uint32_t)json_int(c, "width", 0),
                       h = (uint32_t)json_int(c, "height", 0);
        enum vision_filter filter = VISION_BILINEAR;
        while (strcmp(filters[filter], json_str(c, "filter", "")) != 0)
            filter++;
        vision_picture(json_str(c, "image", ""), &p);
        const struct pixel_view v = {p.rgb, 3 * (size_t)p.width, p.width, p.height};
        assert_int_equal(resample_open(&r, &v, w, h, (struct vision_rect){0, 0, w, h}, filter,
                                       resample_features(), &e),
                         0);
        const size_t row = 3 * (size_t)w;
        void *scratch = malloc(resample_scratch(&r) + 1);
        uint8_t *rows = malloc(h * (row + 1)), *packed = malloc(h * row);
        resample_rows(&r, rows, row + 1, 0, h, scratch);
        for (uint32_t y = 0; y < h; y++)
            memcpy(packed + y * row, rows + y * (row + 1), row);
        if (!vision_sha256(packed, h * row, json_str(c, "sha256", "")))
            fail_msg("%s to %u x %u, %s: other pixels", json_str(c, "image", ""), w, h,
                     filters[filter]);
        resample_close(&r);
        free(scratch);
        free(rows);
        free(packed);
        free(p.rgb);
    }
    cJSON_Delete(all);
}

/* ---------------------------------------------------------------- pixels */

struct shown {
    struct vision_plan plan;
    float *numbers;
    size_t n;
};

static void show_planned(const struct vision *v, struct image *p, struct shown *s)
{
    struct err e = ERR_INIT;
    const struct vision_format *f = vision_format_of(v, &s->plan);
    s->n = pixels_count(f, &s->plan, f->layout);
    s->numbers = malloc(s->n * sizeof(float));
    assert_non_null(s->numbers);
    if (pixels_make(f, &s->plan, p, f->layout, NULL, s->numbers, &e))
        fail_msg("%s", e.msg);
    free(p->rgb);
}

static void show(const struct vision *v, const char *name, struct shown *s)
{
    struct err e = ERR_INIT;
    struct image p;
    vision_picture(name, &p);
    if (vision_plan(v, p.width, p.height, &s->plan, &e))
        fail_msg("%s: %s", name, e.msg);
    show_planned(v, &p, s);
}

static void show_video(const struct vision *v, const cJSON *video, struct shown *s)
{
    struct err e = ERR_INIT;
    struct image p;
    vision_video_of(video, &p);
    const struct vision_video size = {p.width, p.height, p.frames, p.fps};
    if (vision_plan_video(v, &size, &s->plan, &e))
        fail_msg("%s", e.msg);
    show_planned(v, &p, s);
}

/* The pictures side by side as the processor puts them: with dimensions [.., 3, H, W], where each
 * picture has its rows of pixels in a zero canvas of the largest. */
static float *joined(const struct shown *s, int n, const cJSON *shape, size_t *count)
{
    const int dims = cJSON_GetArraySize(shape);
    *count = 1;
    for (int i = 0; i < dims; i++)
        *count *= vision_at(shape, i);
    float *all = calloc(*count, sizeof(float));
    assert_non_null(all);
    size_t at = 0;
    if (dims == 2 || vision_at(shape, 0) == 1) { /* rows of patches; tiles of all pictures */
        for (int i = 0; i < n; i++) {
            assert_true(at + s[i].n <= *count);
            memcpy(all + at, s[i].numbers, s[i].n * sizeof(float));
            at += s[i].n;
        }
        assert_int_equal(at, *count);
        return all;
    }
    const uint32_t height = vision_at(shape, dims - 2), width = vision_at(shape, dims - 1);
    const size_t each = *count / vision_at(shape, 0);
    for (int i = 0, picture = 0; i < n; i++) {
        const struct vision_plan *p = &s[i].plan;
        const bool apart = dims == 4; /* crops are pictures of their own */
        assert_true(p->crop_width <= width && p->crop_height <= height);
        for (size_t row = 0; row < (size_t)p->n_crops * 3 * p->crop_height; row++) {
            const size_t plane = row / p->crop_height, y = row % p->crop_height;
            memcpy(all + (size_t)picture * each + (plane * height + y) * width,
                   s[i].numbers + row * p->crop_width, p->crop_width * sizeof(float));
        }
        picture += apart ? (int)p->n_crops : 1;
    }
    return all;
}

static void check_pixels(const char *what, const struct vision *v, const struct shown *s, int n,
                         const cJSON *expected)
{
    const cJSON *pixels = json_get(expected, "pixel_values"), *thw, *probe;
    size_t count;
    int i = 0;
    float *all = joined(s, n, json_get(pixels, "shape"), &count);
    cJSON_ArrayForEach(probe, json_get(pixels, "probes"))
    {
        const double want = cJSON_GetArrayItem(probe, 1)->valuedouble;
        const float got = all[vision_at(probe, 0)];
        if (got - want > 1e-6 || want - got > 1e-6)
            fail_msg("%s: number %u is %f instead of %f", what, vision_at(probe, 0), got, want);
    }
    if (!vision_sha256(all, count * sizeof(float), json_str(pixels, "sha256", "")))
        fail_msg("%s: other pixels", what);
    free(all);
    cJSON_ArrayForEach(thw, json_get(expected, "image_grid_thw"))
    {
        const uint32_t merge = vision_format(v)->merge;
        assert_int_equal(s[i].plan.grid_h * merge, vision_at(thw, 1));
        assert_int_equal(s[i].plan.grid_w * merge, vision_at(thw, 2));
        i++;
    }
    if (json_get(expected, "rows")) {
        assert_int_equal(s[0].plan.rows, vision_at(json_first(json_get(expected, "rows")), 0));
        assert_int_equal(s[0].plan.cols, vision_at(json_first(json_get(expected, "cols")), 0));
    }
    if (json_get(expected, "num_crops"))
        assert_int_equal(s[0].plan.n_crops - 1, vision_at(json_get(expected, "num_crops"), 0));
}

/* ---------------------------------------------------------------- prompts */

static void check_ids(const char *what, const struct tokenizer *t, const char *text, size_t n,
                      const cJSON *c, struct tok_ids *got)
{
    struct err e = ERR_INIT;
    struct tok_scratch *scratch = NULL;
    const cJSON *ids = json_get(c, "ids");
    const unsigned flags = json_bool(c, "add_special_tokens", true) ? TOK_ADD_SPECIAL : 0;
    assert_int_equal(tokenizer_encode(t, text, n, flags, &scratch, got, &e), 0);
    if ((int)got->n != cJSON_GetArraySize(ids))
        fail_msg("%s: %u tokens instead of %d", what, got->n, cJSON_GetArraySize(ids));
    for (uint32_t i = 0; i < got->n; i++)
        assert_int_equal(got->id[i], vision_at(ids, (int)i));
    tok_scratch_free(scratch);
}

static void check_positions(const struct vision *v, const struct shown *s, int n,
                            const struct tok_ids *ids, const cJSON *c)
{
    struct vision_place places[MAX_PICTURES];
    uint32_t at = 0;
    const cJSON *rows = json_get(c, "position_ids");
    for (int i = 0; i < n; i++) {
        while (ids->id[at] != vision_token(v))
            at++;
        places[i] =
            (struct vision_place){at, s[i].plan.n_features, s[i].plan.grid_h, s[i].plan.grid_w, 0};
        at += s[i].plan.n_features;
    }
    for (uint32_t i = 0; i < ids->n; i++) {
        uint32_t got[3];
        vision_position(v, places, (uint32_t)n, i, got);
        for (int k = 0; k < 3; k++)
            assert_int_equal(got[k], vision_at(cJSON_GetArrayItem(rows, k), (int)i));
    }
    uint32_t next[3]; /* of the first token that is generated */
    vision_position(v, places, (uint32_t)n, ids->n, next);
    assert_int_equal((int64_t)next[0] - ids->n, json_int(c, "rope_delta", 1));
}

static void check_prompt(const char *what, const struct vision *v, const struct tokenizer *t,
                         const struct shown *s, int n, const cJSON *c)
{
    struct buf text = BUF_INIT;
    struct tok_ids ids = {0};
    const char *p = json_str(c, "prompt", ""), *mark;
    uint32_t features = 0, found = 0;
    for (int i = 0; i < n; i++) {
        mark = strstr(p, vision_marker(v));
        assert_non_null(mark);
        buf_add(&text, p, (size_t)(mark - p));
        vision_expand(v, &s[i].plan, (uint32_t)i, &text);
        p = mark + strlen(vision_marker(v));
        features += s[i].plan.n_features;
    }
    buf_str(&text, p);
    check_ids(what, t, text.p, text.len, c, &ids);
    for (uint32_t i = 0; i < ids.n; i++)
        found += ids.id[i] == vision_token(v);
    assert_int_equal(found, features);
    if (json_get(c, "position_ids")) {
        assert_true(vision_three_positions(v));
        check_positions(v, s, n, &ids, c);
    }
    tok_ids_free(&ids);
    buf_free(&text);
}

/* ---------------------------------------------------------------- families */

static void check_case(const char *name, const struct vision *v, const struct tokenizer *t,
                       const cJSON *c)
{
    struct shown s[MAX_PICTURES];
    char what[128];
    const cJSON *file;
    int n = 0;
    cJSON_ArrayForEach(file, json_get(c, "images"))
    {
        assert_true(n < MAX_PICTURES);
        show(v, file->valuestring, &s[n++]);
    }
    snprintf(what, sizeof(what), "%s %s", name,
             n ? json_first(json_get(c, "images"))->valuestring : "without a picture");
    if (json_get(c, "ids")) { /* else transformers fails */
        check_prompt(what, v, t, s, n, c);
        if (n)
            check_pixels(what, v, s, n, c);
    }
    for (int i = 0; i < n; i++)
        free(s[i].numbers);
}

static void too_wide(const char *name, const struct vision *v)
{
    struct vision_plan p;
    struct err e = ERR_INIT;
    const bool refused = strncmp(name, "qwen", 4) == 0;
    assert_int_equal(vision_plan(v, 402, 2, &p, &e), refused ? -1 : 0);
    assert_true(refused ? e.kind == ERR_VALIDATION : p.n_features > 0);
}

static void prompts_and_pixels_are_those_of_transformers(void **state)
{
    struct err e = ERR_INIT;
    (void)state;
    for (int i = 0; i < N_FAMILIES; i++) {
        struct vision *v;
        const cJSON *c;
        cJSON *golden = vision_json(families[i].name, "golden.json");
        if (!golden) {
            TEST_SKIPPED(1, families[i].name);
            continue;
        }
        const char *dir = vision_data(families[i].name, "");
        struct tokenizer *t = tokenizer_load(dir, &e);
        if (!t || vision_load(dir, t, &v, &e))
            fail_msg("%s", e.msg);
        assert_non_null(v);
        assert_string_equal(vision_family(v), json_str(golden, "model_type", ""));
        cJSON_ArrayForEach(c, json_get(golden, "cases")) check_case(families[i].name, v, t, c);
        too_wide(families[i].name, v);
        vision_free(v);
        tokenizer_free(t);
        cJSON_Delete(golden);
    }
}

/* ---------------------------------------------------------------- the hub's sizes */

static void check_run(const struct vision_hub *f, const cJSON *run)
{
    struct vision *v = vision_hub_load(f, json_get(run, "config"));
    const cJSON *c;
    cJSON_ArrayForEach(c, json_get(run, "images"))
    {
        char what[128];
        struct shown s;
        snprintf(what, sizeof(what), "%s, the hub's sizes, %s", f->name, json_str(c, "image", ""));
        show(v, json_str(c, "image", ""), &s);
        check_pixels(what, v, &s, 1, c);
        free(s.numbers);
    }
    cJSON_ArrayForEach(c, json_get(run, "videos"))
    {
        struct shown s;
        show_video(v, json_get(c, "video"), &s);
        check_pixels(f->name, v, &s, 1, c);
        free(s.numbers);
    }
    vision_free(v);
}

static void pixels_at_the_hubs_sizes(void **state)
{
    (void)state;
    for (int i = 0; i < N_FAMILIES; i++) {
        cJSON *golden = vision_json(families[i].name, "golden.json");
        if (!golden)
            TEST_SKIPPED(7, families[i].name);
        else if (json_get(golden, "preprocess"))
            check_run(&families[i], json_get(golden, "preprocess"));
        cJSON_Delete(golden);
    }
}

static void pixels_of_families_made_here(void **state)
{
    static char made[VISION_MOST_MADE][VISION_NAME];
    const uint32_t n = vision_made(made);
    uint32_t run = 0;
    (void)state;
    if (access(vision_data("images", "resize.json"), R_OK)) {
        TEST_SKIPPED(1, "no vision/images in TEST_DATA");
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        cJSON *golden = vision_json(made[i], "golden.json");
        const cJSON *preprocess = json_get(golden, "preprocess");
        if (preprocess) {
            assert_int_equal(cJSON_GetArraySize(json_get(preprocess, "images")), 5);
            check_run(&(struct vision_hub){made[i]}, preprocess);
            run++;
        }
        cJSON_Delete(golden);
    }
    assert_true(run >= 16);
}

static void pan_and_scan(void **state)
{
    const struct vision_hub f = {"gemma3", .image_size = 896, .tokens = 256};
    cJSON *all = vision_json("gemma3", "pan_and_scan.json");
    const cJSON *run;
    (void)state;
    if (!all)
        TEST_SKIPPED(8, "no vision/gemma3 in TEST_DATA");
    cJSON_ArrayForEach(run, json_get(all, "runs")) check_run(&f, run);
    cJSON_Delete(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resized_pictures_have_pillows_digests),
        cmocka_unit_test(prompts_and_pixels_are_those_of_transformers),
        cmocka_unit_test(pixels_at_the_hubs_sizes), cmocka_unit_test(pixels_of_families_made_here),
        cmocka_unit_test(pan_and_scan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
