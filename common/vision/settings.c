#include "common/vision/settings.h"
#include "common/json/json.h"
#include "common/model/model_file.h"
#include "common/tokenizer/tokenizer.h"
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_FILE = 1 << 24 };
const float vision_clip_mean[3] = {0.48145466f, 0.4578275f, 0.40821073f};
const float vision_clip_std[3] = {0.26862954f, 0.26130258f, 0.27577711f};
const float vision_imagenet_mean[3] = {0.485f, 0.456f, 0.406f};
const float vision_imagenet_std[3] = {0.229f, 0.224f, 0.225f};
const float vision_half[3] = {0.5f, 0.5f, 0.5f};

void vision_settings_fail(struct vision_settings *s, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    if (s->failed)
        return;
    s->failed = true;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    err_set(s->e, ERR_VALIDATION, "%s: %s", s->dir, text);
}

/* ---------------------------------------------------------------- files */

static int read_one(struct vision_settings *s, int which, const char *name, bool needed,
                    struct err *e)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/%s", s->dir, name) >= (int)sizeof(path))
        return err_set(e, ERR_VALIDATION, "%s: the path is too long", s->dir);
    if (!needed && !model_file_exists(path))
        return 0;
    return (s->files[which] = model_file_json(path, MAX_FILE, e)) ? 0 : -1;
}

int vision_settings_open(struct vision_settings *s, const char *dir, const struct tokenizer *t,
                         struct err *e)
{
    *s = (struct vision_settings){.dir = dir, .t = t, .e = e};
    if (read_one(s, 0, "config.json", true, e))
        return -1;
    s->config = (struct vision_section){s->files[0], "config.json"};
    s->tower = (struct vision_section){model_file_vision_config(s->config.o), NULL};
    s->tower.name = "vision_config of config.json";
    if (!s->tower.o)
        return 0; /* its other content is not about images */
    if (read_one(s, 1, "preprocessor_config.json", false, e) ||
        read_one(s, 2, "processor_config.json", false, e) ||
        read_one(s, 3, "video_preprocessor_config.json", false, e))
        return -1;
    s->processor = (struct vision_section){s->files[2], "processor_config.json"};
    /* transformers 5 writes one file for both, and then reads no other */
    s->pixels = vision_inside(&s->processor, "image_processor");
    s->pixels.name = "image_processor of processor_config.json";
    if (!s->pixels.o)
        s->pixels = (struct vision_section){s->files[1], "preprocessor_config.json"};
    s->video = vision_inside(&s->processor, "video_processor");
    s->video.name = "video_processor of processor_config.json";
    if (!s->video.o)
        s->video = (struct vision_section){s->files[3], "video_preprocessor_config.json"};
    if (!s->video.o)
        s->video = (struct vision_section){s->files[1], "preprocessor_config.json"};
    return 0;
}

void vision_settings_close(struct vision_settings *s)
{
    for (int i = 0; i < 4; i++)
        cJSON_Delete(s->files[i]);
}

/* ---------------------------------------------------------------- values */

struct vision_section vision_inside(const struct vision_section *in, const char *key)
{
    const cJSON *o = json_get(in->o, key);
    return (struct vision_section){cJSON_IsObject(o) ? o : NULL, in->name};
}

static uint32_t whole(struct vision_settings *s, const cJSON *v, const struct vision_section *in,
                      const char *key, uint32_t min, uint32_t max)
{
    const double d = v && cJSON_IsNumber(v) ? v->valuedouble : NAN;
    if (d >= min && d <= max && d == floor(d))
        return (uint32_t)d;
    vision_settings_fail(s, "%s: %s must be a whole number from %u to %u", in->name, key, min, max);
    return min;
}

uint32_t vision_u32(struct vision_settings *s, const struct vision_section *in, const char *key,
                    uint32_t def, uint32_t min, uint32_t max)
{
    const cJSON *v = json_get(in->o, key);
    return v ? whole(s, v, in, key, min, max) : def;
}

uint32_t vision_shared(struct vision_settings *s, const char *tower_key, const char *key,
                       uint32_t def, uint32_t max)
{
    const uint32_t of_tower = vision_u32(s, &s->tower, tower_key, def, 1, max);
    if (vision_u32(s, &s->pixels, key, of_tower, 1, max) != of_tower)
        vision_settings_fail(s, "%s and %s disagree about %s", s->tower.name, s->pixels.name, key);
    return of_tower;
}

double vision_number(struct vision_settings *s, const struct vision_section *in, const char *key,
                     double def)
{
    const cJSON *v = json_get(in->o, key);
    if (!v)
        return def;
    if (cJSON_IsNumber(v) && isfinite(v->valuedouble))
        return v->valuedouble;
    vision_settings_fail(s, "%s: %s must be a number", in->name, key);
    return def;
}

bool vision_flag(const struct vision_section *in, const char *key, bool def)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(in->o, key);
    return v ? cJSON_IsTrue(v) || (cJSON_IsNumber(v) && v->valuedouble != 0) : def;
}

uint32_t vision_side(struct vision_settings *s, const struct vision_section *in, const char *key,
                     uint32_t def)
{
    const cJSON *v = json_get(in->o, key), *other = v;
    if (!v)
        return def;
    if (cJSON_IsArray(v)) {
        v = json_first(other);
        other = cJSON_GetArraySize(other) == 2 ? v->next : NULL;
    } else if (cJSON_IsObject(v)) {
        v = json_get(other, "height");
        other = json_get(other, "width");
    }
    uint32_t side = whole(s, v, in, key, 1, VISION_MAX_SETTING);
    if (whole(s, other, in, key, 1, VISION_MAX_SETTING) != side)
        vision_settings_fail(s, "%s: %s must be a square", in->name, key);
    return side;
}

uint32_t vision_tile_tokens(struct vision_settings *s, const struct vision_grids *g,
                            uint32_t of_tower, uint32_t unit)
{
    if (g->tile != of_tower || g->tile % unit || g->min_tiles > g->max_tiles)
        vision_settings_fail(s, "%s: size, image_size, patch_size and numbers of patches disagree",
                             s->pixels.name);
    return g->tile / unit * (g->tile / unit);
}

uint32_t vision_edge(struct vision_settings *s, const char *edge, uint32_t def, uint32_t min)
{
    const struct vision_section size = vision_inside(&s->pixels, "size");
    if (json_get(s->pixels.o, "size") && !json_get(size.o, edge))
        vision_settings_fail(s, "%s: size must have %s", s->pixels.name, edge);
    return vision_u32(s, &size, edge, def, min, VISION_MAX_SETTING);
}

/* ---------------------------------------------------------------- pixels */

void vision_channels(struct vision_settings *s, const struct vision_section *in, const char *key,
                     const float def[3], bool divisor, float out[3])
{
    const cJSON *v = json_get(in->o, key), *one = cJSON_IsArray(v) ? json_first(v) : v;
    memmove(out, def, 3 * sizeof(*out));
    if (!v)
        return;
    for (int i = 0; i < 3; i++) {
        out[i] = one && cJSON_IsNumber(one) ? (float)one->valuedouble : NAN;
        if (!isfinite(out[i]) || (divisor && out[i] == 0.0f)) {
            vision_settings_fail(s, "%s: %s must be three numbers%s", in->name, key,
                                 divisor ? ", none of them 0" : "");
            out[i] = 1.0f;
        }
        one = cJSON_IsArray(v) && one ? one->next : one;
    }
}

void vision_mean_outside(struct vision_settings *s, const float def[3], struct vision_format *f)
{
    float mean[3];
    vision_channels(s, &s->pixels, "image_mean", def, false, mean);
    for (int i = 0; i < 3; i++)
        f->outside[i] = (uint8_t)fmin(fmax(0, mean[i] * 255.0), 255);
}

const struct vision_pixel_defaults *vision_defaults(const struct vision_settings *s,
                                                    const struct vision_pixel_defaults *of_class,
                                                    const struct vision_pixel_defaults *published)
{
    return s->pixels.o ? of_class : published;
}

void vision_keeps_square(struct vision_settings *s, uint32_t side)
{
    if (vision_flag(&s->pixels, "do_center_crop", false) &&
        vision_side(s, &s->pixels, "crop_size", side) != side)
        vision_settings_fail(s, "%s: size and crop_size disagree", s->pixels.name);
    if (vision_flag(&s->pixels, "do_pad", false) && json_get(s->pixels.o, "pad_size"))
        vision_settings_fail(s, "%s: pad_size is not supported", s->pixels.name);
}

static enum vision_filter read_filter(struct vision_settings *s, enum vision_filter def)
{
    static const enum vision_filter by_number[] = {VISION_NEAREST, VISION_LANCZOS, VISION_BILINEAR,
                                                   VISION_BICUBIC, VISION_BOX,     VISION_HAMMING};
    return json_get(s->pixels.o, "resample") /* a number of Pillow */
               ? by_number[vision_u32(s, &s->pixels, "resample", 0, 0, 5)]
               : def;
}

void vision_read_format(struct vision_settings *s, struct vision_format *f,
                        const struct vision_pixel_defaults *d)
{
    static const float zero[3] = {0}, one[3] = {1, 1, 1};
    f->filter = read_filter(s, d->filter);
    if (d->patch) /* 0: the tower has no patches */
        f->patch = vision_side(s, &s->tower, "patch_size", d->patch);
    else
        f->patch = 1;
    f->merge = f->frames = 1;
    f->layout = VISION_PLANES;
    f->rescale = 1.0;
    if (vision_flag(&s->pixels, "do_rescale", true))
        f->rescale = vision_number(s, &s->pixels, "rescale_factor", 1.0 / 255);
    vision_channels(s, &s->pixels, "image_mean", d->mean, false, f->mean);
    vision_channels(s, &s->pixels, "image_std", d->std, true, f->std);
    if (!vision_flag(&s->pixels, "do_normalize", true)) {
        memcpy(f->mean, zero, sizeof(zero));
        memcpy(f->std, one, sizeof(one));
    }
    if (!d->crops && vision_flag(&s->pixels, "do_center_crop", false) &&
        !json_get(s->pixels.o, "crop_size"))
        vision_settings_fail(s, "%s: do_center_crop needs crop_size", s->pixels.name);
    if (!vision_flag(&s->pixels, "do_resize", true))
        vision_settings_fail(s, "%s: do_resize must be true", s->pixels.name);
    if (f->patch > 256) {
        vision_settings_fail(s, "%s: patch_size must be at most 256", s->tower.name);
        f->patch = 1;
    }
}

void vision_read_video_format(struct vision_settings *s, struct vision *v,
                              const struct vision_pixel_defaults *d)
{
    struct vision_settings of_video = *s;
    of_video.pixels = s->video;
    v->video.format = v->format;
    vision_read_format(&of_video, &v->video.format, d);
    v->video.format.patch = v->format.patch;
    v->video.format.merge = v->format.merge;
    v->video.format.frames = v->format.frames;
    v->video.format.layout = v->format.layout;
    s->failed |= of_video.failed;
    const struct {
        const char *key;
        uint32_t is;
    } equal[] = {{"patch_size", v->format.patch},
                 {"merge_size", v->format.merge},
                 {"temporal_patch_size", v->format.frames}};
    for (size_t i = 0; i < sizeof(equal) / sizeof(equal[0]); i++)
        vision_u32(s, &s->video, equal[i].key, equal[i].is, equal[i].is, equal[i].is);
}

void vision_take_frames(struct vision_settings *s, struct vision *v, uint32_t token,
                        const char *pad, const char *marker)
{
    v->video.apart = true;
    v->video.token = token;
    snprintf(v->video.pad, sizeof(v->video.pad), "%s", pad);
    snprintf(v->video.marker, sizeof(v->video.marker), "%s", marker);
    snprintf(v->video.around, sizeof(v->video.around), "%s", marker);
    v->video.taken = !s->failed;
}

/* ---------------------------------------------------------------- tokens */

const char *vision_key(const struct vision_settings *s, const char *key, const char *other)
{
    return !json_get(s->config.o, key) && json_get(s->config.o, other) ? other : key;
}

uint32_t vision_read_token(struct vision_settings *s, const char *key, const char *name,
                           uint32_t def, char text[VISION_TOKEN_TEXT])
{
    const cJSON *given = key ? json_get(s->config.o, key) : NULL;
    const int64_t known = s->t ? tokenizer_id(s->t, name) : -1;
    uint32_t id = given ? whole(s, given, &s->config, key, 0, INT32_MAX)
                        : (uint32_t)(known >= 0 ? known : def);
    const char *found = s->t ? tokenizer_token(s->t, id) : name;
    if (!found || !*found || strlen(found) >= VISION_TOKEN_TEXT) {
        vision_settings_fail(s, "config.json: %s is %u, which is not a valid token for %s",
                             key ? key : "a placeholder", id, name);
        found = name;
    }
    snprintf(text, VISION_TOKEN_TEXT, "%s", found);
    return id;
}

void vision_need_token(struct vision_settings *s, const char *name)
{
    if (s->t && tokenizer_id(s->t, name) < 0)
        vision_settings_fail(s, "the tokenizer lacks %s, the placeholder of images", name);
}
