/* Plans, placeholders, positions and pixels of TEST_DATA/vision against transformers and Pillow:
 * every number to the bit. */
#include "common/tokenizer/tokenizer.h"
#include "common/vision/vision.h"
#include "model-server/encoder/pixels.h"
#include "model-server/encoder/resample.h"
#include "tests/golden/vision_rig.h"
#include "tests/vision_folder.h"

/* Folders, and what the hub's sizes ask of the rest of config.json; 0: nothing. */
static const struct family {
    const char *name;
    uint32_t image_size, patch_size, tokens, scale;
} families[] = {{"qwen2_5_vl"},
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

static void show(const struct vision *v, const char *name, struct shown *s)
{
    struct err e = ERR_INIT;
    struct image p;
    vision_picture(name, &p);
    if (vision_plan(v, p.width, p.height, &s->plan, &e))
        fail_msg("%s: %s", name, e.msg);
    const struct vision_format *f = vision_format(v);
    s->n = pixels_count(f, &s->plan, f->layout);
    s->numbers = malloc(s->n * sizeof(float));
    assert_non_null(s->numbers);
    if (pixels_make(f, &s->plan, &p, f->layout, NULL, s->numbers, &e))
        fail_msg("%s: %s", name, e.msg);
    free(p.rgb);
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
            (struct vision_place){at, s[i].plan.n_features, s[i].plan.grid_h, s[i].plan.grid_w};
        at += s[i].plan.n_features;
    }
    for (uint32_t i = 0; i < ids->n; i++) {
        uint32_t got[3];
        vision_position(places, (uint32_t)n, i, got);
        for (int k = 0; k < 3; k++)
            assert_int_equal(got[k], vision_at(cJSON_GetArrayItem(rows, k), (int)i));
    }
    assert_int_equal(vision_position_delta(places, (uint32_t)n), json_int(c, "rope_delta", 1));
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

static void set(cJSON *o, const char *key, uint32_t value)
{
    if (!value)
        return;
    cJSON_DeleteItemFromObjectCaseSensitive(o, key);
    assert_non_null(cJSON_AddNumberToObject(o, key, value));
}

/* `config`, which ends here, with the hub's sizes, and `preprocessor`. */
static struct vision *load_config(const struct family *f, cJSON *config, const cJSON *preprocessor)
{
    struct vision_folder d;
    struct vision *v;
    struct err e = ERR_INIT;
    assert_non_null(config);
    cJSON *tower = cJSON_GetObjectItemCaseSensitive(config, "vision_config");
    set(tower, "image_size", f->image_size);
    set(tower, "patch_size", f->patch_size);
    set(config, "mm_tokens_per_image", f->tokens);
    set(config, "scale_factor", f->scale);
    vision_folder_make(&d);
    vision_write_json(&d, "config.json", config);
    vision_write_json(&d, "preprocessor_config.json", preprocessor);
    if (vision_load(d.path, NULL, &v, &e))
        fail_msg("%s", e.msg);
    vision_folder_remove(&d);
    cJSON_Delete(config);
    assert_non_null(v);
    return v;
}

static struct vision *load_with(const struct family *f, const cJSON *preprocessor)
{
    return load_config(f, vision_json(f->name, "config.json"), preprocessor);
}

static void check_run(const struct family *f, const cJSON *run)
{
    struct vision *v = load_with(f, json_get(run, "config"));
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
            check_run(&(struct family){made[i]}, preprocess);
            run++;
        }
        cJSON_Delete(golden);
    }
    assert_true(run >= 16);
}

/* Grids of features at the hub's settings, of cells of so many pixels; sizes without one are
 * refused. */
static void check_sizes(const struct family *f, const char *preprocessor, uint32_t cell,
                        uint32_t refusals)
{
    cJSON *golden = vision_json(f->name, "golden.json"), *pixels = cJSON_Parse(preprocessor);
    const cJSON *c;
    uint32_t n = 0, refused = 0;
    struct vision *v = load_with(f, pixels);
    cJSON_ArrayForEach(c, json_get(golden, "sizes"))
    {
        const uint32_t w = vision_at(c, 0), h = vision_at(c, 1);
        const bool shown = cJSON_GetArraySize(c) == 4;
        struct vision_plan p;
        struct err e = ERR_INIT;
        assert_int_equal(vision_plan(v, w, h, &p, &e), shown ? 0 : -1);
        if (shown && (p.grid_h != vision_at(c, 2) || p.grid_w != vision_at(c, 3) ||
                      p.crop_height != cell * p.grid_h || p.crop_width != cell * p.grid_w ||
                      p.n_features != p.grid_h * p.grid_w))
            fail_msg("%s, %u x %u: %u x %u features", f->name, w, h, p.grid_h, p.grid_w);
        refused += !shown;
        n++;
    }
    assert_int_equal(n, 224);
    assert_int_equal(refused, refusals);
    vision_free(v);
    cJSON_Delete(pixels);
    cJSON_Delete(golden);
}

static void sizes_are_chosen_as_transformers_do(void **state)
{
    (void)state;
    check_sizes(&(struct family){"gemma4", .patch_size = 16}, "{}", 48, 0);
    check_sizes(&(struct family){"glm4v", .patch_size = 14, .image_size = 336}, "{}", 28, 33);
    check_sizes(&(struct family){"kimi_vl", .patch_size = 14}, "{\"pad_input\":true}", 28, 0);
    check_sizes(&(struct family){"kimi_k25", .patch_size = 14}, "{}", 28, 0);
    check_sizes(&(struct family){"paddleocr_vl", .patch_size = 14, .image_size = 384}, "{}", 28,
                33);
}

/* The hub's shapes: 6 x 6 tiles whose 162 x 162 features become as many as 9 tiles have. */
static void onevision_shrinks_what_is_too_much(void **state)
{
    cJSON *pixels = cJSON_CreateObject();
    const struct family f = {"llava_onevision", .image_size = 384, .patch_size = 14};
    struct vision_plan p;
    struct err e = ERR_INIT;
    (void)state;
    cJSON *config = vision_json(f.name, "config.json");
    cJSON_DeleteItemFromObjectCaseSensitive(config, "image_grid_pinpoints");
    cJSON_DeleteItemFromObjectCaseSensitive(config, "vision_aspect_ratio");
    struct vision *v = load_config(&f, config, pixels);
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

/* Canvases and sizes at the hub's settings. */
static void llama4_chooses_canvases_as_transformers_do(void **state)
{
    cJSON *golden = vision_json("llama4", "golden.json"), *pixels = cJSON_CreateObject();
    const struct family f = {"llama4", .image_size = 336, .patch_size = 14};
    const cJSON *run, *c;
    uint32_t n = 0;
    (void)state;
    cJSON_ArrayForEach(run, json_get(golden, "canvases"))
    {
        cJSON_DeleteItemFromObjectCaseSensitive(pixels, "resize_to_max_canvas");
        cJSON_AddBoolToObject(pixels, "resize_to_max_canvas",
                              json_bool(run, "resize_to_max_canvas", false));
        struct vision *v = load_with(&f, pixels);
        cJSON_ArrayForEach(c, json_get(run, "sizes"))
        {
            const uint32_t w = vision_at(c, 0), h = vision_at(c, 1), rows = vision_at(c, 2),
                           cols = vision_at(c, 3);
            struct vision_plan p;
            struct err e = ERR_INIT;
            assert_int_equal(vision_plan(v, w, h, &p, &e), 0);
            const struct vision_resize *r = &p.resizes[0];
            if (p.n_crops != rows * cols + (rows * cols > 1) || (p.n_crops > 1 && p.rows != rows) ||
                r->width != vision_at(c, 4) || r->height != vision_at(c, 5))
                fail_msg("%u x %u: %u x %u tiles, resized to %u x %u", w, h, p.rows, p.cols,
                         r->width, r->height);
            n++;
        }
        vision_free(v);
    }
    assert_int_equal(n, 2 * 224);
    cJSON_Delete(pixels);
    cJSON_Delete(golden);
}

/* The same of Llama 3.2 Vision, which has no crop of the whole image. */
static void mllama_chooses_canvases_as_transformers_do(void **state)
{
    cJSON *golden = vision_json("mllama", "golden.json"), *pixels = cJSON_CreateObject();
    const struct family f = {"mllama", .image_size = 560, .patch_size = 14};
    const cJSON *c;
    uint32_t n = 0;
    (void)state;
    cJSON *size = cJSON_AddObjectToObject(pixels, "size");
    cJSON_AddNumberToObject(size, "height", 560);
    cJSON_AddNumberToObject(size, "width", 560);
    struct vision *v = load_with(&f, pixels);
    assert_true(vision_crosses(v));
    cJSON_ArrayForEach(c, json_get(cJSON_GetArrayItem(json_get(golden, "canvases"), 0), "sizes"))
    {
        const uint32_t w = vision_at(c, 0), h = vision_at(c, 1);
        struct vision_plan p;
        struct err e = ERR_INIT;
        assert_int_equal(vision_plan(v, w, h, &p, &e), 0);
        const struct vision_resize *r = &p.resizes[0];
        if (p.rows != vision_at(c, 2) || p.cols != vision_at(c, 3) || r->width != vision_at(c, 4) ||
            r->height != vision_at(c, 5))
            fail_msg("%u x %u: %u x %u tiles, resized to %u x %u", w, h, p.rows, p.cols, r->width,
                     r->height);
        assert_int_equal(p.n_crops, p.rows * p.cols);
        assert_int_equal(p.n_features, p.n_crops * 1601);
        assert_int_equal(p.n_tokens, 1);
        n++;
    }
    assert_int_equal(n, 224);
    vision_free(v);
    cJSON_Delete(pixels);
    cJSON_Delete(golden);
}

/* Tiles and sizes of LFM2-VL; the picture as a whole comes last, of a size of its own. */
static void lfm2_cuts_tiles_as_transformers_do(void **state)
{
    cJSON *golden = vision_json("lfm2_vl", "golden.json"), *pixels = cJSON_CreateObject();
    const struct family f = {"lfm2_vl", .patch_size = 16};
    const cJSON *c;
    uint32_t n = 0, cut = 0;
    (void)state;
    struct vision *v = load_with(&f, pixels);
    cJSON_ArrayForEach(c, json_get(cJSON_GetArrayItem(json_get(golden, "canvases"), 0), "sizes"))
    {
        const uint32_t w = vision_at(c, 0), h = vision_at(c, 1);
        const uint32_t rows = vision_at(c, 2), cols = vision_at(c, 3), tiles = rows * cols;
        struct vision_plan p;
        struct err e = ERR_INIT;
        assert_int_equal(vision_plan(v, w, h, &p, &e), 0);
        const uint32_t last = p.n_crops - 1, own = p.n_features - (tiles > 1 ? tiles * 256 : 0);
        if ((tiles > 1 && (p.rows != rows || p.cols != cols)) || last != (tiles > 1 ? tiles : 0) ||
            vision_crop_width(&p, last) != vision_at(c, 4) ||
            vision_crop_height(&p, last) != vision_at(c, 5) ||
            own != vision_at(c, 4) / 32 * (vision_at(c, 5) / 32))
            fail_msg("%u x %u: %u x %u tiles, %u features", w, h, p.rows, p.cols, p.n_features);
        cut += tiles > 1;
        n++;
    }
    assert_int_equal(n, 224);
    assert_true(cut > 50 && cut < n);
    vision_free(v);
    cJSON_Delete(pixels);
    cJSON_Delete(golden);
}

/* The whole picture and slices of MiniCPM-V, whose sides are chosen independently. */
static void minicpmv_cuts_slices_as_transformers_does(void **state)
{
    cJSON *golden = vision_json("minicpmv4_6", "golden.json"), *pixels = cJSON_CreateObject();
    const struct family f = {"minicpmv4_6", .patch_size = 14};
    const cJSON *c;
    uint32_t n = 0, cut = 0, large = 0;
    (void)state;
    struct vision *v = load_with(&f, pixels);
    cJSON_ArrayForEach(c, json_get(cJSON_GetArrayItem(json_get(golden, "canvases"), 0), "sizes"))
    {
        const uint32_t w = vision_at(c, 0), h = vision_at(c, 1),
                       slices = vision_at(c, 4) * vision_at(c, 5);
        struct vision_plan p;
        struct err e = ERR_INIT;
        n++;
        if (vision_plan(v, w, h, &p, &e)) { /* pictures of one pixel a side grow very long */
            assert_true(vision_at(c, 2) > VISION_MAX_CROP_SIDE ||
                        vision_at(c, 3) > VISION_MAX_CROP_SIDE);
            large++;
            continue;
        }
        const uint32_t last = p.n_crops - 1;
        if (last != slices || p.crops[0].width != vision_at(c, 2) ||
            p.crops[0].height != vision_at(c, 3) ||
            (slices &&
             (p.rows != vision_at(c, 4) || p.cols != vision_at(c, 5) ||
              p.crops[last].width != vision_at(c, 6) || p.crops[last].height != vision_at(c, 7))))
            fail_msg("%u x %u: %u x %u slices, the whole is %u x %u", w, h, p.rows, p.cols,
                     p.crops[0].width, p.crops[0].height);
        cut += slices > 0;
    }
    assert_int_equal(n, 224);
    assert_true(cut > 50 && cut < n && large < 10);
    vision_free(v);
    cJSON_Delete(pixels);
    cJSON_Delete(golden);
}

/* Grids of Ovis 2 by what tiles see of a picture, and by the nearest aspect ratio. */
static void ovis2_chooses_grids_as_transformers_do(void **state)
{
    cJSON *golden = vision_json("ovis2", "golden.json"), *pixels = cJSON_CreateObject();
    const struct family f = {"ovis2", .image_size = 448, .patch_size = 14};
    const cJSON *run, *c;
    uint32_t n = 0, cut = 0;
    (void)state;
    cJSON_AddTrueToObject(pixels, "crop_to_patches");
    cJSON_AddNumberToObject(pixels, "max_patches", 9);
    cJSON_AddNumberToObject(pixels, "size", 448);
    cJSON_ArrayForEach(run, json_get(golden, "canvases"))
    {
        cJSON_DeleteItemFromObjectCaseSensitive(pixels, "use_covering_area_grid");
        cJSON_AddBoolToObject(pixels, "use_covering_area_grid",
                              json_bool(run, "use_covering_area_grid", true));
        struct vision *v = load_with(&f, pixels);
        cJSON_ArrayForEach(c, json_get(run, "sizes"))
        {
            const uint32_t w = vision_at(c, 0), h = vision_at(c, 1), rows = vision_at(c, 2),
                           cols = vision_at(c, 3);
            struct vision_plan p;
            struct err e = ERR_INIT;
            assert_int_equal(vision_plan(v, w, h, &p, &e), 0);
            if (p.n_crops != 1 + (rows * cols > 1 ? rows * cols : 0) ||
                (p.n_crops > 1 && (p.rows != rows || p.cols != cols)))
                fail_msg("%u x %u: %u x %u tiles, not %u x %u", w, h, p.rows, p.cols, rows, cols);
            cut += p.n_crops > 1;
            n++;
        }
        vision_free(v);
    }
    assert_int_equal(n, 2 * 224);
    assert_true(cut > 100 && cut < n);
    cJSON_Delete(pixels);
    cJSON_Delete(golden);
}

static void pan_and_scan(void **state)
{
    const struct family f = {"gemma3", .image_size = 896, .tokens = 256};
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
        cmocka_unit_test(pixels_at_the_hubs_sizes),
        cmocka_unit_test(pixels_of_families_made_here),
        cmocka_unit_test(llama4_chooses_canvases_as_transformers_do),
        cmocka_unit_test(mllama_chooses_canvases_as_transformers_do),
        cmocka_unit_test(onevision_shrinks_what_is_too_much),
        cmocka_unit_test(sizes_are_chosen_as_transformers_do),
        cmocka_unit_test(lfm2_cuts_tiles_as_transformers_do),
        cmocka_unit_test(minicpmv_cuts_slices_as_transformers_does),
        cmocka_unit_test(ovis2_chooses_grids_as_transformers_do),
        cmocka_unit_test(pan_and_scan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
