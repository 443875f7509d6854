/* vision_files.h - loads settings of vision models from texts. */
#ifndef TESTS_UNIT_COMMON_VISION_VISION_FILES_H
#define TESTS_UNIT_COMMON_VISION_VISION_FILES_H
#include "common/buf.h"
#include "common/vision/vision.h"
#include "tests/vision_folder.h"

static inline int load_files(const char *config, const char *preprocessor, const char *processor,
                             struct vision **v, struct err *e)
{
    struct vision_folder d;
    vision_folder_make(&d);
    vision_write(&d, "config.json", config);
    if (preprocessor)
        vision_write(&d, "preprocessor_config.json", preprocessor);
    if (processor)
        vision_write(&d, "processor_config.json", processor);
    int rc = vision_load(d.path, NULL, v, e);
    vision_folder_remove(&d);
    return rc;
}

static inline struct vision *load(const char *config, const char *preprocessor)
{
    struct vision *v;
    struct err e = ERR_INIT;
    if (load_files(config, preprocessor, NULL, &v, &e))
        fail_msg("%s", e.msg);
    assert_non_null(v);
    return v;
}

static inline struct vision_plan planned(const struct vision *v, uint32_t w, uint32_t h)
{
    struct vision_plan p;
    struct err e = ERR_INIT;
    if (vision_plan(v, w, h, &p, &e))
        fail_msg("%s", e.msg);
    return p;
}

/* A family with its default settings. */
static inline struct vision *family(const char *type, const char *tower)
{
    char config[256];
    snprintf(config, sizeof(config),
             "{\"model_type\": \"%s\", \"vision_config\": {\"model_type\": \"%s\"}}", type, tower);
    return load(config, NULL);
}

/* The text of an image of w x h. */
static inline void expands_to(const struct vision *v, uint32_t w, uint32_t h, const char *want)
{
    struct buf out = BUF_INIT;
    const struct vision_plan p = planned(v, w, h);
    vision_expand(v, &p, 0, &out);
    assert_string_equal(out.p, want);
    buf_free(&out);
}
#endif
