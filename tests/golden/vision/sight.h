/* sight.h - models of TEST_DATA/vision: a model, its tower, its images; and the images of a case
 * of golden.json. */
#ifndef TESTS_GOLDEN_SIGHT_H
#define TESTS_GOLDEN_SIGHT_H
#include "common/image/canvas.h"
#include "common/image/reel.h"
#include "model-server/encoder/tower.h"
#include "model-server/engine/media/pictures.h"
#include "model-server/model/decoder.h"
#include "model-server/model/text/text_encoder.h"
#include "tests/golden/golden.h"
#include "tests/golden/vision/vision_rig.h"

enum { SIGHT_MOST_IMAGES = 2, SIGHT_BLOCKS = 64 };

/* Families of the reference data, then those that make_vision.py made. */
static const char *const sight_given[] = {"qwen2_5_vl", "qwen3_vl",   "qwen3_5",  "qwen3_5_moe",
                                          "gemma3",     "llava_next", "idefics3", "smolvlm",
                                          "mistral3",   "pixtral"};
enum { N_GIVEN = sizeof(sight_given) / sizeof(sight_given[0]) };

/* each(name) of all of them. */
static inline void sight_each(void (*each)(const char *name))
{
    static char made[VISION_MOST_MADE][VISION_NAME];
    const uint32_t n = vision_made(made);
    for (int i = 0; i < N_GIVEN; i++)
        each(sight_given[i]);
    for (uint32_t i = 0; i < n; i++)
        each(made[i]);
}

/* TEST_DATA/vision/<a>/<b>, or the folder without `b`; tests/data/vision for families made by
 * make_vision.py. */
static inline const char *path_of(char out[PATH_LEN], const char *a, const char *b)
{
    const char *env = getenv("TEST_DATA");
    int n = snprintf(out, PATH_LEN, "%s/vision/%s%s%s",
                     vision_is_made(a) ? "tests/data"
                     : env && *env     ? env
                                       : TEST_DATA,
                     a, b ? "/" : "", b ? b : "");
    if (n < 0 || n >= PATH_LEN)
        abort();
    return out;
}

/* ---------------------------------------------------------------- a model that sees */

struct sight {
    struct bench b;
    bool rounded; /* products round to 16 bits, where this machine has such ones */
    struct vision *vision;
    struct tower *tower;
    struct text_encoder *texts; /* NULL: the model has no encoder of texts */
    struct pictures *pictures;
    struct err e;
};

static inline int decode_here(void *arg, const void *bytes, size_t n,
                              const struct image_times *times, struct image *out, struct err *e)
{
    struct image_info info;
    (void)arg, (void)times;
    if (image_sniff(bytes, n, &image_default_limits, &info, e))
        return -1;
    *out = (struct image){.width = info.width,
                          .height = info.height,
                          .rgb = malloc((size_t)info.width * info.height * 3)};
    if (!out->rgb)
        return err_nomem(e);
    return image_decode_here(bytes, n, &info, out->rgb, e);
}

static inline int sight_model(struct sight *s, const struct backend_ops *ops, const char *dir,
                              struct comm *comm)
{
    const struct device_options d = {
        .threads = 1, .features = ~0ull, .arith = s->rounded ? ARITH_HALF : ARITH_EXACT};
    s->b.ops = ops;
    if (!(s->b.dev = ops->open(&d, &s->e)))
        return -1;
    const struct model_options o = {
        .ops = ops, .dev = s->b.dev, .comm = comm, .dtype = -1, .activations = ACTIVATIONS_EXACT};
    if (!(s->b.model = model_load(dir, &o, &s->e)) ||
        model_kv_resize(s->b.model, SIGHT_BLOCKS, BLOCK_SIZE, KV_F32, &s->e) ||
        model_state_resize(s->b.model, SIGHT_BLOCKS, &s->e))
        return -1;
    s->b.vocab = model_info(s->b.model)->vocab;
    return 0;
}

static inline int sight_open_as(struct sight *s, const struct backend_ops *ops, const char *dir,
                                struct comm *comm, bool rounded)
{
    memset(s, 0, sizeof(*s));
    s->rounded = rounded;
    if (sight_model(s, ops, dir, comm) || vision_load(dir, NULL, &s->vision, &s->e) ||
        tower_load(dir, model_decoder(s->b.model), &s->tower, &s->e))
        return -1;
    if (!s->vision || !s->tower)
        return err_set(&s->e, ERR_VALIDATION, "%s: no tower", dir);
    if (model_info(s->b.model)->attends_text &&
        text_encoder_load(dir, model_decoder(s->b.model), &s->texts, &s->e))
        return -1;
    const struct pictures_options o = {.vision = s->vision,
                                       .tower = s->tower,
                                       .texts = s->texts,
                                       .most_ids = MAX_LEN,
                                       .decode = decode_here,
                                       .ops = s->b.ops,
                                       .dev = s->b.dev,
                                       .most_bytes = 1 << 20,
                                       .model = s->b.model};
    s->pictures = pictures_new(&o, &s->e);
    return s->pictures && pictures_reserve_shown(s->pictures, SIGHT_BLOCKS, KV_F32, &s->e) == 0
               ? 0
               : -1;
}

static inline int sight_open_on(struct sight *s, const struct backend_ops *ops, const char *dir,
                                struct comm *comm)
{
    return sight_open_as(s, ops, dir, comm, false);
}

static inline int sight_open(struct sight *s, const char *dir, struct comm *comm)
{
    memset(s, 0, sizeof(*s));
    const struct backend_ops *ops = backend_find("cpu", &s->e);
    return ops ? sight_open_on(s, ops, dir, comm) : -1;
}

static inline void sight_close(struct sight *s)
{
    pictures_free(s->pictures);
    text_encoder_free(s->texts);
    tower_free(s->tower);
    vision_free(s->vision);
    bench_close(&s->b);
}

/* ---------------------------------------------------------------- the pictures of a case */

static inline char *read_all(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *bytes = malloc(*n + 1);
    if (!bytes || fread(bytes, 1, *n, f) != *n)
        abort();
    fclose(f);
    return bytes;
}

static inline int sight_image(struct sight *s, const char *name, struct media_spec *m,
                              struct vision_plan *plan)
{
    char path[PATH_LEN];
    struct image_info info;
    m->bytes = read_all(path_of(path, "images", name), &m->n_bytes);
    return !m->bytes || image_sniff(m->bytes, m->n_bytes, &image_default_limits, &info, &s->e) ||
                   vision_plan(s->vision, info.width, info.height, plan, &s->e)
               ? -1
               : 0;
}

/* {"frames": [file], "fps"} */
static inline int sight_video(struct sight *s, const cJSON *video, struct media_spec *m,
                              struct vision_plan *plan)
{
    enum { MOST_FRAMES = 8 };
    struct reel_frame frames[MOST_FRAMES];
    struct reel_info info;
    struct buf reel = BUF_INIT;
    const cJSON *name;
    uint32_t n = 0;
    cJSON_ArrayForEach(name, json_get(video, "frames"))
    {
        char path[PATH_LEN];
        if (n == MOST_FRAMES)
            abort();
        frames[n].bytes = read_all(path_of(path, "images", name->valuestring), &frames[n].n);
        if (!frames[n++].bytes)
            return -1;
    }
    reel_write(&reel, frames, n, json_get(video, "fps")->valuedouble);
    while (n)
        free((void *)(uintptr_t)frames[--n].bytes);
    m->n_bytes = reel.len;
    m->bytes = buf_take(&reel);
    if (reel_sniff(m->bytes, m->n_bytes, &image_default_limits, &info, &s->e))
        return -1;
    const struct vision_video v = {info.width, info.height, info.frames, info.fps};
    return vision_plan_video(s->vision, &v, plan, &s->e);
}

/* Images are consecutive in the prompt, each with as many placeholders as it has features.
 * specs[SIGHT_MOST_IMAGES]; -1 with s->e. */
static inline int sight_specs(struct sight *s, const cJSON *c, const uint32_t *ids, uint32_t n_ids,
                              struct media_spec *specs, uint32_t *n)
{
    const cJSON *name;
    uint32_t at = 0;
    *n = 0;
    cJSON_ArrayForEach(name, json_get(c, "images"))
    {
        struct vision_plan plan;
        struct media_spec *m = &specs[(*n)++];
        *m = (struct media_spec){0};
        if (cJSON_IsObject(name) ? sight_video(s, name, m, &plan)
                                 : sight_image(s, name->valuestring, m, &plan))
            return -1;
        const uint32_t token = vision_token_of(s->vision, &plan);
        while (at < n_ids && ids[at] != token)
            at++;
        m->position = at;
        for (uint32_t seen = 0; at < n_ids && seen < plan.n_tokens; at++)
            seen += ids[at] == token;
        m->tokens = at - m->position;
    }
    return 0;
}

static inline void sight_free_specs(struct media_spec *specs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        free((void *)(uintptr_t)specs[i].bytes);
}

static inline cJSON *sight_golden(const char *name)
{
    char path[PATH_LEN];
    struct err e = ERR_INIT;
    cJSON *golden = json_load(path_of(path, name, "golden.json"), 1 << 24, &e);
    if (!golden)
        fail_msg("%s", e.msg);
    return golden;
}
#endif
