/* vision_rig.h - shared by tests of vision models: images of TEST_DATA/vision, digests. */
#ifndef TESTS_GOLDEN_VISION_RIG_H
#define TESTS_GOLDEN_VISION_RIG_H
#include "common/hub/digest.h"
#include "common/image/canvas.h"
#include "common/json/json.h"
#include "tests/unit/test.h"
#include <dirent.h>
#include <string.h>
#include <unistd.h>

/* Families that make_vision.py made, in tests/data. */
static inline bool vision_is_made(const char *family)
{
    char path[512];
    snprintf(path, sizeof(path), "tests/data/vision/%s/golden.json", family);
    return access(path, R_OK) == 0;
}

/* Their names in ascending order; the number of them. */
enum { VISION_MOST_MADE = 128, VISION_NAME = 32 };
static inline int vision_by_name(const void *a, const void *b) { return strcmp(a, b); }
static inline uint32_t vision_made(char names[VISION_MOST_MADE][VISION_NAME])
{
    DIR *dir = opendir("tests/data/vision");
    uint32_t n = 0;
    assert_non_null(dir);
    for (const struct dirent *d; (d = readdir(dir));)
        if (vision_is_made(d->d_name)) {
            assert_true(n < VISION_MOST_MADE && strlen(d->d_name) < VISION_NAME);
            memcpy(names[n++], d->d_name, strlen(d->d_name) + 1);
        }
    closedir(dir);
    qsort(names, n, sizeof(names[0]), vision_by_name);
    return n;
}

static inline const char *vision_data(const char *folder, const char *file)
{
    static char path[2][1024];
    static int turn;
    const char *dir = getenv("TEST_DATA");
    turn = !turn;
    dir = dir && *dir ? dir : TEST_DATA;
    snprintf(path[turn], sizeof(path[turn]), "%s/vision/%s%s%s",
             vision_is_made(folder) ? "tests/data" : dir, folder, *file ? "/" : "", file);
    return path[turn];
}

/* NULL where it is absent. */
static inline cJSON *vision_json(const char *folder, const char *file)
{
    struct err e = ERR_INIT;
    const char *path = vision_data(folder, file);
    if (access(path, R_OK))
        return NULL;
    cJSON *j = json_load(path, 1 << 26, &e);
    if (!j)
        fail_msg("%s", e.msg);
    return j;
}

static inline void vision_picture(const char *name, struct image *out)
{
    struct err e = ERR_INIT;
    struct image_info info;
    size_t n;
    char *bytes = file_read(vision_data("images", name), 1 << 26, &n, &e);
    if (!bytes || image_sniff(bytes, n, &image_default_limits, &info, &e))
        fail_msg("%s: %s", name, e.msg);
    *out = (struct image){.width = info.width,
                          .height = info.height,
                          .rgb = malloc((size_t)info.width * info.height * 3)};
    if (!out->rgb || image_decode_here(bytes, n, &info, out->rgb, &e))
        fail_msg("%s: %s", name, e.msg);
    free(bytes);
}

/* {"frames": [file], "fps"}: frames of one size. */
static inline void vision_video_of(const cJSON *video, struct image *out)
{
    const cJSON *name;
    struct image frame;
    *out = (struct image){.fps = json_get(video, "fps")->valuedouble};
    cJSON_ArrayForEach(name, json_get(video, "frames"))
    {
        vision_picture(name->valuestring, &frame);
        const size_t each = (size_t)frame.width * frame.height * 3;
        out->rgb = realloc(out->rgb, (out->frames + 1) * each);
        assert_true(out->rgb && (!out->frames || out->width == frame.width));
        memcpy(out->rgb + out->frames++ * each, frame.rgb, each);
        out->width = frame.width;
        out->height = frame.height;
        free(frame.rgb);
    }
}

static inline bool vision_sha256(const void *p, size_t n, const char *hex)
{
    struct digest d;
    struct err e = ERR_INIT;
    assert_int_equal(digest_begin(&d, hex, 0, &e), 0);
    assert_non_null(d.state);
    digest_add(&d, p, n);
    return digest_matches(&d, hex);
}

static inline uint32_t vision_at(const cJSON *list, int i)
{
    const cJSON *v = cJSON_GetArrayItem(list, i);
    assert_true(cJSON_IsNumber(v));
    return (uint32_t)v->valuedouble;
}
#endif
