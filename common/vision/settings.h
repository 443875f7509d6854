/* settings.h - the files that say how a vision model takes pictures, read with bounds.
 *
 * Every reader notes the first fault in `e` and carries on with a harmless value, so that a family
 * reads its keys line by line and vision_load() looks once, at `failed`. */
#ifndef COMMON_VISION_SETTINGS_H
#define COMMON_VISION_SETTINGS_H
#include "common/vision/vision_impl.h"
#include <cjson/cJSON.h>

/* An object of one of the files; `o` is NULL where there is none. */
struct vision_section {
    const cJSON *o;
    const char *name; /* for messages */
};
struct vision_settings {
    const char *dir;
    const struct tokenizer *t; /* or NULL */
    cJSON *files[3];           /* owned: config, preprocessor_config, processor_config */
    struct vision_section config, tower, pixels, processor;
    struct err *e;
    bool failed;
};
/* -1: config.json cannot be read, or a file that is there is no JSON. */
int vision_settings_open(struct vision_settings *s, const char *dir, const struct tokenizer *t,
                         struct err *e);
void vision_settings_close(struct vision_settings *s);
void vision_settings_fail(struct vision_settings *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* An integer in [min, max]; `def` where the key is absent. */
uint32_t vision_u32(struct vision_settings *s, const struct vision_section *in, const char *key,
                    uint32_t def, uint32_t min, uint32_t max);
double vision_number(struct vision_settings *s, const struct vision_section *in, const char *key,
                     double def); /* finite */
bool vision_flag(const struct vision_section *in, const char *key, bool def);
/* A side of a square, 1 .. VISION_MAX_SETTING: 14, [14, 14] or {"height": 14, "width": 14}. */
uint32_t vision_side(struct vision_settings *s, const struct vision_section *in, const char *key,
                     uint32_t def);
/* The object under `key`; its `o` is NULL where there is none. */
struct vision_section vision_inside(const struct vision_section *in, const char *key);

/* Mean, std, rescaling and filter, which are the family's where the file is silent; the tower's
 * patch. */
struct vision_pixel_defaults {
    enum vision_filter filter;
    const float *mean, *std; /* [3] */
    uint32_t patch;
};
extern const float vision_clip_mean[3], vision_clip_std[3], vision_imagenet_mean[3],
    vision_imagenet_std[3], vision_half[3];
void vision_read_format(struct vision_settings *s, struct vision_format *f,
                        const struct vision_pixel_defaults *d);

/* An id of config.json and its text: of the tokenizer's, else `name`. `key` absent: what the
 * tokenizer has for `name`, else `def`. */
uint32_t vision_read_token(struct vision_settings *s, const char *key, const char *name,
                           uint32_t def, char text[VISION_TOKEN_TEXT]);
/* A token that no key names: a fault if there is a tokenizer that lacks it. */
void vision_need_token(struct vision_settings *s, const char *name);
#endif
