// fuzz-sources: common/file/file_stamp.c
// fuzz-sources: common/vision/*.c common/json/json.c common/json/reader.c common/arena.c
// fuzz-sources: common/err.c common/json/exact.c common/utf8.c common/buf.c
// fuzz-sources: common/model/model_file.c common/gguf/*.c common/tokenizer/*.c
// fuzz-sources: common/file/file_map.c model-server/encoder/family.c
// fuzz-sources: model-server/encoder/family/*.c model-server/encoder/conv_s*.c
// fuzz-sources: model-server/encoder/arrange.c model-server/model/arch.c
// fuzz-sources: model-server/model/arch/*.c model-server/model/config/*.c
// fuzz-sources: model-server/model/rope.c model-server/model/split.c common/model/first_module.c
#include "common/vision/vision.h"
#include "model-server/encoder/arrange.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_plan(const struct vision_format *f, const struct vision_plan *p)
{
    require(p->n_crops && p->n_crops <= VISION_MAX_CROPS && p->n_resizes <= VISION_MAX_RESIZES);
    require(p->n_features && vision_pixels_before(p, p->n_crops) <= VISION_MAX_PIXELS);
    for (uint32_t i = 0; i < p->n_crops; i++)
        require(vision_crop_width(p, i) % f->patch == 0 &&
                vision_crop_height(p, i) % f->patch == 0);
    for (uint32_t i = 0; i < p->n_resizes; i++) {
        const struct vision_resize *r = &p->resizes[i];
        const bool padded = p->canvas.width > 0;
        const uint32_t w = r->of >= 0 ? p->resizes[r->of].width
                           : padded   ? p->canvas.width
                                      : p->width;
        const uint32_t h = r->of >= 0 ? p->resizes[r->of].height
                           : padded   ? p->canvas.height
                                      : p->height;
        require(r->of < (int32_t)i && r->width && r->height && r->cut.width && r->cut.height);
        require((uint64_t)r->cut.x + r->cut.width <= w && (uint64_t)r->cut.y + r->cut.height <= h);
    }
    for (uint32_t i = 0; i < p->n_crops; i++)
        require(p->crops[i].of < p->n_resizes);
    require(!p->shrunk_h == !p->shrunk_w && p->shrunk_h <= p->grid_h && p->shrunk_w <= p->grid_w);
}

/* ---------------------------------------------------------------- the tower of the same files */

static void check_projection(const struct encoder_projection *p)
{
    require(p->n_linears && p->n_linears <= ENCODER_MAX_LINEARS && p->join);
    for (uint32_t i = 0; i < p->n_linears; i++)
        require(p->linear[i].rows);
}

static void check_spec(const struct encoder_spec *s)
{
    const struct decoder_spec *b = &s->blocks;
    require(s->width && b->hidden && s->patch && s->frames && s->cell);
    if (!s->conv.n)
        require(b->n_layers && b->n_layers <= SPEC_MAX_LAYERS && b->head_dim &&
                b->head_dim <= ROPE_MAX_DIM && b->n_heads && b->n_heads % b->n_kv_heads == 0 &&
                b->rope[0].dim <= b->head_dim);
    require(s->n_levels <= ENCODER_MAX_LEVELS && s->n_sides <= ENCODER_MAX_TAPS);
    for (uint32_t i = 0; i < s->n_levels; i++)
        require(s->level_at[i] < b->n_layers);
    for (uint32_t i = 0; i < s->n_sides; i++)
        require(s->side_at[i] < b->n_layers);
    require(s->resample.depth <= ENCODER_MAX_SAMPLERS);
    if (s->project.n_linears || !s->conv.n) /* steps may project by themselves */
        check_projection(&s->project);
}

/* Patches of the plan, if the tower takes it: each is in its crop, and contributes to features. */
static void check_arranged(const struct encoder_spec *s, const struct vision_plan *p)
{
    struct err e = {0};
    const struct arrange_grid g = arrange_grid(s, p, p->n_crops - 1);
    const size_t n = (size_t)g.rows * g.cols;
    if (arrange_check(s, p, &e) || s->joint.tiles || s->resample.latents || n > 1 << 14)
        return;
    struct tower_place *places = malloc(n * sizeof(*places));
    struct mutual *mutual = malloc(2 * n * sizeof(*mutual)); /* of queries, too */
    require(places && mutual);
    arrange_places(s, g, places, mutual);
    for (uint32_t i = 0; i < n; i++) {
        require(places[i].row < g.rows && places[i].col < g.cols);
        require(!s->windows || (mutual[i].begin <= i && i < mutual[i].end && mutual[i].end <= n));
        if (i >= arrange_whole(s, g))
            continue;
        const struct arrange_shares to = arrange_feature(s, p, p->n_crops - 1, g, places[i]);
        for (uint32_t k = 0; k < to.n; k++)
            require(to.to[k] < p->n_features);
    }
    free(places);
    free(mutual);
}

/* NULL: the files have no tower. */
static const struct encoder_spec *check_tower(const char *path)
{
    static struct encoder_spec spec;
    const struct encoder_family *family;
    struct err e = {0};
    if (encoder_configure(path, &family, &spec, &e)) {
        require(e.msg[0] && !strchr(e.msg, '\n'));
        return NULL;
    }
    if (family)
        check_spec(&spec);
    return family && !family->before ? &spec : NULL;
}

/* ---------------------------------------------------------------- plans */

static void check_pictures(const struct vision *v, const struct encoder_spec *tower,
                           const uint8_t *data, size_t n)
{
    static const uint32_t sides[] = {1, 2, 5, 97, 640, 3000, VISION_MAX_SIDE};
    enum { N = sizeof(sides) / sizeof(sides[0]) };
    struct vision_plan p;
    struct err e = {0};
    struct buf text = BUF_INIT;
    for (uint32_t i = 0; i < N * N + 2; i++) {
        uint32_t w = sides[i / N % N], h = sides[i % N];
        if (i >= N * N && n >= 4) { /* from the input */
            w = 1 + (uint32_t)(data[0] << 8 | data[1]) % VISION_MAX_SIDE;
            h = 1 + (uint32_t)(data[2] << 8 | data[3]) % (i == N * N ? VISION_MAX_SIDE : 300);
        }
        if (vision_plan(v, w, h, &p, &e) == 0) {
            check_plan(vision_format(v), &p);
            if (tower)
                check_arranged(tower, &p);
        } else
            require(e.msg[0] && !strchr(e.msg, '\n'));
    }
    if (vision_plan(v, 60, 40, &p, &e) == 0 && p.n_features < 4096)
        vision_expand(v, &p, n ? data[0] : 0, &text);
    if (vision_text(v, (const char *)data, n, &text, &e))
        require(e.msg[0] && !strchr(e.msg, '\n'));
    buf_free(&text);
}

/* Videos of a few sizes and rates: their features are those that the text has places for. */
static void check_videos(const struct vision *v, const struct encoder_spec *tower)
{
    static const struct vision_video videos[] = {
        {60, 40, 1, 2}, {60, 40, 5, 0.001}, {1, 3000, 2, 1000}, {640, 97, 64, 30}, {2, 2, 513, 1}};
    for (size_t i = 0; i < sizeof(videos) / sizeof(videos[0]); i++) {
        struct vision_plan p;
        struct err e = {0};
        struct buf text = BUF_INIT;
        if (vision_plan_video(v, &videos[i], &p, &e)) {
            require(e.msg[0] && !strchr(e.msg, '\n'));
            continue;
        }
        require(videos[i].frames <= vision_most_frames(v));
        check_plan(vision_format_of(v, &p), &p);
        require(!vision_frames_apart(v) || p.n_features == p.n_crops * p.grid_h * p.grid_w);
        if (tower)
            check_arranged(tower, &p);
        if (p.n_features < 4096)
            vision_expand(v, &p, 0, &text);
        buf_free(&text);
    }
}

static void write_file(const char *dir, const char *name, const uint8_t *data, size_t n)
{
    char path[96];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n)
        abort();
    fclose(f);
}

static char dir[] = "/tmp/fuzz-vision-XXXXXX";

static void clean_up(void)
{
    char path[96];
    snprintf(path, sizeof(path), "%s/config.json", dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/preprocessor_config.json", dir);
    unlink(path);
    rmdir(dir);
}

/* config.json, a byte 0, preprocessor_config.json, a byte 0, four bytes of a size: refused in one
 * line, or plans and a tower within their bounds. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static bool made;
    struct vision *v;
    struct err e = {0};
    if (!made) {
        require(mkdtemp(dir) && atexit(clean_up) == 0);
        made = true;
    }
    const uint8_t *end = data + n, *second = memchr(data, 0, n);
    write_file(dir, "config.json", data, (size_t)((second ? second : end) - data));
    second = second ? second + 1 : end;
    const uint8_t *rest = memchr(second, 0, (size_t)(end - second));
    write_file(dir, "preprocessor_config.json", second, (size_t)((rest ? rest : end) - second));
    rest = rest ? rest + 1 : end;
    char config[96];
    snprintf(config, sizeof(config), "%s/config.json", dir);
    const struct encoder_spec *tower = check_tower(config);
    if (vision_load(dir, NULL, &v, &e))
        require(e.msg[0] && !strchr(e.msg, '\n'));
    else if (v) {
        check_pictures(v, tower, rest, (size_t)(end - rest));
        check_videos(v, tower);
    }
    vision_free(v);
    return 0;
}
