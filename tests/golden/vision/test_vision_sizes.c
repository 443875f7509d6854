/* test_vision_sizes.c - how families resize and split pictures of 224 sizes with the hub's
 * settings, against transformers. */
#include "tests/golden/vision/vision_hub.h"

/* A family's rule. Its golden.json has rows of numbers that begin with a picture's width and
 * height: "sizes", or "canvases": several runs with settings of their own. */
struct rule {
    struct vision_hub hub;
    const char *pixels; /* preprocessor_config.json */
    /* Whether the row says this of the picture. `p` NULL: it was refused. */
    bool (*right)(const struct vision_plan *p, const cJSON *row);
    uint32_t runs, refused; /* expected numbers of runs, and of pictures that are refused */
    bool cuts;              /* some pictures have one crop, others several */
};

static bool resized_to(const struct vision_plan *p, const cJSON *row, int at)
{
    const struct vision_resize *r = &p->resizes[0];
    return r->width == vision_at(row, at) && r->height == vision_at(row, at + 1);
}

static bool has_grid(const struct vision_plan *p, const cJSON *row)
{
    return p->rows == vision_at(row, 2) && p->cols == vision_at(row, 3);
}

static uint32_t tiles_of(const cJSON *row) { return vision_at(row, 2) * vision_at(row, 3); }

/* One crop: [rows, cols] of features; nothing if there is no size. */
static bool grid_and(const struct vision_plan *p, const cJSON *row, uint32_t more)
{
    const bool shown = cJSON_GetArraySize(row) == 4;
    if (!p || !shown)
        return !p && !shown;
    return p->grid_h == vision_at(row, 2) && p->grid_w == vision_at(row, 3) &&
           p->crop_height / p->grid_h == p->crop_width / p->grid_w &&
           p->n_features == p->grid_h * p->grid_w + more;
}

static bool grid_of_features(const struct vision_plan *p, const cJSON *row)
{
    return grid_and(p, row, 0);
}

/* The same, with one more feature at each end. A longer side than a crop may have is refused. */
static bool grid_between(const struct vision_plan *p, const cJSON *row)
{
    enum { UNIT = 32 };
    const bool shown = cJSON_GetArraySize(row) == 4;
    const uint32_t longer = !shown                                  ? 0
                            : vision_at(row, 2) > vision_at(row, 3) ? vision_at(row, 2)
                                                                    : vision_at(row, 3);
    return longer * UNIT > VISION_MAX_CROP_SIDE ? !p : grid_and(p, row, 2);
}

/* [rows, cols, width, height]: tiles, and what the picture is resized to; several tiles are
 * followed by the whole picture. */
static bool llama4(const struct vision_plan *p, const cJSON *row)
{
    const uint32_t tiles = tiles_of(row);
    return p && p->n_crops == tiles + (tiles > 1) && (tiles == 1 || p->rows == vision_at(row, 2)) &&
           resized_to(p, row, 4);
}

/* [rows, cols]: tiles; several are followed by the whole picture. */
static bool docling(const struct vision_plan *p, const cJSON *row)
{
    const uint32_t tiles = tiles_of(row);
    return p && p->n_crops == tiles + (tiles > 1) && (tiles == 1 || has_grid(p, row));
}

/* The same without the whole picture. */
static bool mllama(const struct vision_plan *p, const cJSON *row)
{
    return p && has_grid(p, row) && resized_to(p, row, 4) && p->n_crops == tiles_of(row) &&
           p->n_features == p->n_crops * 1601 && p->n_tokens == 1;
}

/* [rows, cols, width, height]: tiles, and the picture as a whole, which comes last. */
static bool lfm2(const struct vision_plan *p, const cJSON *row)
{
    const uint32_t w = vision_at(row, 4), h = vision_at(row, 5);
    const uint32_t tiles = tiles_of(row) > 1 ? tiles_of(row) : 0;
    return p && (!tiles || has_grid(p, row)) && p->n_crops == tiles + 1 &&
           vision_crop_width(p, tiles) == w && vision_crop_height(p, tiles) == h &&
           p->n_features == tiles * 256 + w / 32 * (h / 32);
}

/* [width, height, rows, cols, width, height]: the whole picture, slices, and the size of one. */
static bool minicpmv(const struct vision_plan *p, const cJSON *row)
{
    const uint32_t w = vision_at(row, 2), h = vision_at(row, 3);
    const uint32_t slices = vision_at(row, 4) * vision_at(row, 5);
    if (!p)
        return false;
    const struct vision_crop *last = &p->crops[p->n_crops - 1];
    return p->n_crops == 1 + slices && p->crops[0].width == w && p->crops[0].height == h &&
           (!slices || (p->rows == vision_at(row, 4) && p->cols == vision_at(row, 5) &&
                        last->width == vision_at(row, 6) && last->height == vision_at(row, 7)));
}

/* [rows, cols]: tiles behind the whole picture, if they are several. */
static bool ovis2(const struct vision_plan *p, const cJSON *row)
{
    const uint32_t tiles = tiles_of(row) > 1 ? tiles_of(row) : 0;
    return p && p->n_crops == 1 + tiles && (!tiles || has_grid(p, row));
}

/* The same; a single one, too. */
static bool perception_lm(const struct vision_plan *p, const cJSON *row)
{
    return p && p->n_crops == 1 + tiles_of(row) && has_grid(p, row);
}

/* [rows, cols, width, height]: tiles before the whole picture, and what they are cut from. */
static bool step3p7(const struct vision_plan *p, const cJSON *row)
{
    const uint32_t tiles = tiles_of(row);
    if (!p || tiles >= VISION_MAX_CROPS)
        return !p && tiles >= VISION_MAX_CROPS;
    return p->n_crops == tiles + 1 && has_grid(p, row) && (!tiles || resized_to(p, row, 4)) &&
           p->n_features == tiles * 81 + 169;
}

/* clang-format off */
static const struct rule rules[] = {
    {{"step3p7", .image_size = 728, .patch_size = 14}, "{}", step3p7, 1, 4, true},
    {{"gemma4", .patch_size = 16}, "{}", grid_of_features, 1, 0, false},
    {{"glm4v", .patch_size = 14, .image_size = 336}, "{}", grid_of_features, 1, 33, false},
    {{"cosmos3_edge", .patch_size = 16}, "{}", grid_of_features, 1, 33, false},
    {{"ovis2_5", .patch_size = 16}, "{}", grid_between, 1, 5, false},
    {{"glm5_next", .patch_size = 14}, "{}", grid_of_features, 1, 0, false},
    {{"kimi_vl", .patch_size = 14}, "{\"pad_input\":true}", grid_of_features, 1, 0, false},
    {{"kimi_k25", .patch_size = 14}, "{}", grid_of_features, 1, 0, false},
    {{"muse_glimmer", .patch_size = 14}, "{}", grid_of_features, 1, 0, false},
    {{"nemotron_h_omni", .patch_size = 16}, "{}", grid_of_features, 1, 0, false},
    {{"paddleocr_vl", .patch_size = 14, .image_size = 384}, "{}", grid_of_features, 1, 33, false},
    {{"llama4", .image_size = 336, .patch_size = 14}, "{}", llama4, 2, 0, true},
    {{"mllama", .image_size = 560, .patch_size = 14}, "{\"size\":{\"height\":560,\"width\":560}}",
     mllama, 1, 0, true},
    {{"lfm2_vl", .patch_size = 16}, "{}", lfm2, 1, 0, true},
    {{"minicpmv4_6", .patch_size = 14}, "{}", minicpmv, 1, 0, true},
    {{"minicpm_ocr", .patch_size = 14}, "{}", minicpmv, 1, 0, true},
    {{"ovis2", .image_size = 448, .patch_size = 14},
     "{\"crop_to_patches\":true,\"max_patches\":9,\"size\":448}", ovis2, 2, 0, true},
    {{"granite_docling", .image_size = 512, .patch_size = 16}, "{}", docling, 2, 0, true},
    {{"perception_lm", .image_size = 448}, "{}", perception_lm, 2, 0, false},
};
/* clang-format on */

struct count {
    uint32_t rows, refused, cut;
};

static void check_run(const struct rule *r, const cJSON *settings, const cJSON *rows,
                      struct count *n)
{
    cJSON *pixels = cJSON_Parse(r->pixels);
    const cJSON *c;
    assert_non_null(pixels);
    cJSON_ArrayForEach(c, settings) if (strcmp(c->string, "sizes") != 0)
        cJSON_AddItemToObject(pixels, c->string, cJSON_Duplicate(c, true));
    struct vision *v = vision_hub_load(&r->hub, pixels);
    cJSON_ArrayForEach(c, rows)
    {
        struct vision_plan p;
        struct err e = ERR_INIT;
        const uint32_t w = vision_at(c, 0), h = vision_at(c, 1);
        const bool planned = vision_plan(v, w, h, &p, &e) == 0;
        if (!r->right(planned ? &p : NULL, c))
            fail_msg(
                "%s, %u x %u: %s, %u x %u tiles, %u crops, %u x %u features, resized to %u x %u",
                r->hub.name, w, h, planned ? "planned" : e.msg, p.rows, p.cols, p.n_crops, p.grid_h,
                p.grid_w, p.resizes[0].width, p.resizes[0].height);
        n->rows++;
        n->refused += !planned;
        n->cut += planned && p.n_crops > 1;
    }
    vision_free(v);
    cJSON_Delete(pixels);
}

static void sizes_are_chosen_as_transformers_do(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        const struct rule *r = &rules[i];
        cJSON *golden = vision_json(r->hub.name, "golden.json");
        const cJSON *runs = json_get(golden, "canvases"), *run;
        struct count n = {0};
        cJSON_ArrayForEach(run, runs) check_run(r, run, json_get(run, "sizes"), &n);
        if (!runs)
            check_run(r, NULL, json_get(golden, "sizes"), &n);
        assert_int_equal(n.rows, r->runs * 224);
        assert_int_equal(n.refused, r->refused);
        assert_true(!r->cuts || (n.cut > 50 && n.cut < n.rows));
        cJSON_Delete(golden);
    }
}

/* The images of a prompt as a shard finds them; the number of them. */
static uint32_t places_of(const struct vision *v, const cJSON *c, struct vision_place *out,
                          uint32_t most)
{
    const cJSON *ids = json_get(c, "ids"), *images = json_get(c, "images");
    const uint32_t n = (uint32_t)cJSON_GetArraySize(images),
                   n_ids = (uint32_t)cJSON_GetArraySize(ids);
    assert_true(n > 0 && n <= most);
    for (uint32_t i = 0; i < n; i++) {
        const cJSON *row = cJSON_GetArrayItem(images, (int)i);
        out[i] = (struct vision_place){
            .first = vision_at(row, 0),
            .n = vision_at(row, 1),
            .grid_h = vision_at(row, 2),
            .grid_w = vision_at(row, 3),
            .tiles = {vision_at(row, 4), vision_at(row, 5), vision_at(row, 6), vision_at(row, 7)}};
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t begin = out[i].first + out[i].n;
        const uint32_t end = i + 1 < n ? out[i + 1].first - 1 : n_ids;
        while (begin + out[i].behind < end &&
               vision_belongs(v, vision_at(ids, (int)(begin + out[i].behind))))
            out[i].behind++;
    }
    return n;
}

static void tokens_of_slices_are_on_the_canvas(void **state)
{
    struct err e = ERR_INIT;
    struct vision *v = NULL;
    uint32_t prompts = 0;
    (void)state;
    cJSON *golden = vision_json("minicpmv4_7", "golden.json");
    const cJSON *c;
    assert_int_equal(vision_load(vision_data("minicpmv4_7", ""), NULL, &v, &e), 0);
    assert_true(v && vision_canvas(v));
    cJSON_ArrayForEach(c, json_get(golden, "places"))
    {
        struct vision_place at[4];
        uint32_t got[3];
        const cJSON *rows = json_get(c, "positions"), *want;
        const uint32_t n = places_of(v, c, at, 4);
        const uint32_t n_ids = (uint32_t)cJSON_GetArraySize(json_get(c, "ids"));
        for (int k = 0; k < 3; k++) {
            uint32_t i = 0;
            cJSON_ArrayForEach(want, cJSON_GetArrayItem(rows, k))
            {
                vision_position(v, at, n, i, got);
                if (got[k] != (uint32_t)want->valuedouble)
                    fail_msg("prompt %u, token %u: coordinate %d is %u instead of %g", prompts, i,
                             k, got[k], want->valuedouble);
                i++;
            }
            assert_int_equal(i, n_ids);
        }
        vision_position(v, at, n, n_ids, got);
        assert_int_equal(got[0], (int)json_num(c, "next", -1));
        prompts++;
    }
    assert_int_equal(prompts, 12);
    vision_free(v);
    cJSON_Delete(golden);
}

/* The hub's shapes: 6 x 6 tiles whose 162 x 162 features become as many as 9 tiles have. */
static void onevision_shrinks_what_is_too_much(void **state)
{
    cJSON *pixels = cJSON_CreateObject();
    const struct vision_hub f = {"llava_onevision", .image_size = 384, .patch_size = 14};
    struct vision_plan p;
    struct err e = ERR_INIT;
    (void)state;
    cJSON *config = vision_json(f.name, "config.json");
    cJSON_DeleteItemFromObjectCaseSensitive(config, "image_grid_pinpoints");
    cJSON_DeleteItemFromObjectCaseSensitive(config, "vision_aspect_ratio");
    struct vision *v = vision_hub_config(&f, config, pixels);
    assert_int_equal(vision_plan(v, 2304, 2304, &p, &e), 0);
    assert_int_equal(p.n_crops, 37);
    assert_int_equal(p.crop_width, 378); /* whole patches of a tile of 384 */
    assert_int_equal(p.crops[8].x, 384);
    assert_int_equal(p.crops[8].y, 384);
    assert_int_equal(p.shrunk_h, 81);
    assert_int_equal(p.shrunk_w, 81);
    assert_int_equal(p.n_features, 27 * 27 + 81 * 82);
    assert_int_equal(vision_plan(v, 384, 384, &p, &e), 0);
    assert_int_equal(p.shrunk_h, 0);
    assert_int_equal(p.n_features, 27 * 27 + 27 * 28);
    vision_free(v);
    cJSON_Delete(pixels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_are_chosen_as_transformers_do),
                                       cmocka_unit_test(tokens_of_slices_are_on_the_canvas),
                                       cmocka_unit_test(onevision_shrinks_what_is_too_much)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
