/* settings.h - reads the image settings of a vision model from its files, with bounds.
 *
 * Every reader keeps the first error in `e` and returns a safe value. So a family reads its keys
 * line by line, and vision_load() checks `failed` once. */
#ifndef COMMON_VISION_SETTINGS_H
#define COMMON_VISION_SETTINGS_H
#include "common/vision/vision_impl.h"
#include <cjson/cJSON.h>

/* An object in one of the files; `o` is NULL if absent. */
struct vision_section {
    const cJSON *o;
    const char *name; /* for messages */
};
struct vision_settings {
    const char *dir;
    const struct tokenizer *t; /* may be NULL */
    /* owned: config, preprocessor_config, processor_config, video_preprocessor_config */
    cJSON *files[4];
    struct vision_section config, tower, pixels, processor;
    /* of videos; as in transformers that of images where there is no other */
    struct vision_section video;
    struct err *e;
    bool failed;
};
/* -1: config.json cannot be read, or another file is invalid JSON. */
int vision_settings_open(struct vision_settings *s, const char *dir, const struct tokenizer *t,
                         struct err *e);
void vision_settings_close(struct vision_settings *s);
void vision_settings_fail(struct vision_settings *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* An integer in [min, max]; `def` if the key is absent. */
uint32_t vision_u32(struct vision_settings *s, const struct vision_section *in, const char *key,
                    uint32_t def, uint32_t min, uint32_t max);
/* A number of the tower, whose `key` in the preprocessor's file must be equal if it is there. */
uint32_t vision_shared(struct vision_settings *s, const char *tower_key, const char *key,
                       uint32_t def, uint32_t max);
double vision_number(struct vision_settings *s, const struct vision_section *in, const char *key,
                     double def); /* finite */
/* `def` if the key is absent. As in Python, null is false, and a number other than 0 is true. */
bool vision_flag(const struct vision_section *in, const char *key, bool def);
/* The side of a square, 1 .. VISION_MAX_SETTING: 14, [14, 14] or {"height": 14, "width": 14}. */
uint32_t vision_side(struct vision_settings *s, const struct vision_section *in, const char *key,
                     uint32_t def);
/* Tokens of a square tile, of which each covers `unit` x `unit` pixels. It fails unless the tile is
 * as large as the tower's images and a multiple of `unit`, and the bounds of g are in order. */
uint32_t vision_tile_tokens(struct vision_settings *s, const struct vision_grids *g,
                            uint32_t of_tower, uint32_t unit);
/* `edge` of the preprocessor's `size`, from min; `def` if there is no size. A size in another form
 * is an error. */
uint32_t vision_edge(struct vision_settings *s, const char *edge, uint32_t def, uint32_t min);
/* The object at `key`; its `o` is NULL if absent. */
struct vision_section vision_inside(const struct vision_section *in, const char *key);

/* Defaults of the family for mean, std, filter and patch size. */
struct vision_pixel_defaults {
    enum vision_filter filter;
    const float *mean, *std; /* [3] */
    uint32_t patch;          /* 0: none, and of no file */
    bool crops;              /* the class has a crop_size; else do_center_crop needs the file's */
};
extern const float vision_clip_mean[3], vision_clip_std[3], vision_imagenet_mean[3],
    vision_imagenet_std[3], vision_half[3];
void vision_read_format(struct vision_settings *s, struct vision_format *f,
                        const struct vision_pixel_defaults *d);
/* Sets v->video.format: mean, std and filter of videos' settings, the rest of v->format. An error
 * if their patch_size, merge_size or temporal_patch_size differ from those of images. */
void vision_read_video_format(struct vision_settings *s, struct vision *v,
                              const struct vision_pixel_defaults *d);
/* The model takes videos: each frame is apart, as tokens `token` with text `pad`, where a template
 * has `marker`. The caller has read v->video.format. */
void vision_take_frames(struct vision_settings *s, struct vision *v, uint32_t token,
                        const char *pad, const char *marker);
/* Three numbers, or one for all three channels; `def`, which may be `out`, if the key is absent.
 * `divisor`: 0 is an error. */
void vision_channels(struct vision_settings *s, const struct vision_section *in, const char *key,
                     const float def[3], bool divisor, float out[3]);
/* An error if the file has the central part of a resized image, a square of `side`, cut out or
 * filled up to another size. Of families whose class in transformers does this as its file says. */
void vision_keeps_square(struct vision_settings *s, uint32_t side);
/* Keys that the preprocessor's file lacks have the defaults of transformers' class, although
 * published files have others. Without a file the model is as published. */
const struct vision_pixel_defaults *vision_defaults(const struct vision_settings *s,
                                                    const struct vision_pixel_defaults *of_class,
                                                    const struct vision_pixel_defaults *published);
/* Sets f->outside to image_mean of the file, whether or not pixels are normalised. */
void vision_mean_outside(struct vision_settings *s, const float def[3], struct vision_format *f);

/* `key` of config.json, or `other` where it has that alone. */
const char *vision_key(const struct vision_settings *s, const char *key, const char *other);
/* A token id from config.json and its text from the tokenizer, or `name`. If `key` is absent: the
 * tokenizer's id of `name`, otherwise `def`. */
uint32_t vision_read_token(struct vision_settings *s, const char *key, const char *name,
                           uint32_t def, char text[VISION_TOKEN_TEXT]);
/* Requires a token without a key: an error if the tokenizer lacks it. */
void vision_need_token(struct vision_settings *s, const char *name);
#endif
