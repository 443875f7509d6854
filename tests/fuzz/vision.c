// fuzz-sources: common/vision/*.c common/json.c common/json_reader.c common/arena.c common/err.c
// fuzz-sources: common/json_exact.c common/utf8.c common/buf.c common/model_file.c common/gguf/*.c
// fuzz-sources: common/tokenizer/*.c common/file_map.c
#include "common/vision/vision.h"
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
        const uint32_t w = r->of < 0 ? p->width : p->resizes[r->of].width;
        const uint32_t h = r->of < 0 ? p->height : p->resizes[r->of].height;
        require(r->of < (int32_t)i && r->width && r->height && r->cut.width && r->cut.height);
        require((uint64_t)r->cut.x + r->cut.width <= w && (uint64_t)r->cut.y + r->cut.height <= h);
    }
    for (uint32_t i = 0; i < p->n_crops; i++)
        require(p->crops[i].of < p->n_resizes);
    require(!p->shrunk_h == !p->shrunk_w && p->shrunk_h <= p->grid_h && p->shrunk_w <= p->grid_w);
}

static void check_pictures(const struct vision *v, const uint8_t *data, size_t n)
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
        if (vision_plan(v, w, h, &p, &e) == 0)
            check_plan(vision_format(v), &p);
        else
            require(e.msg[0] && !strchr(e.msg, '\n'));
    }
    if (vision_plan(v, 60, 40, &p, &e) == 0 && p.n_features < 4096)
        vision_expand(v, &p, n ? data[0] : 0, &text);
    buf_free(&text);
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
 * line, or plans within their bounds. */
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
    if (vision_load(dir, NULL, &v, &e))
        require(e.msg[0] && !strchr(e.msg, '\n'));
    else if (v)
        check_pictures(v, rest, (size_t)(end - rest));
    vision_free(v);
    return 0;
}
