/* vision_hub.h - checkpoints of tests with the sizes of the hub's files: plans depend on them, and
 * weights do not matter. */
#ifndef TESTS_GOLDEN_VISION_HUB_H
#define TESTS_GOLDEN_VISION_HUB_H
#include "common/model/model_file.h"
#include "common/vision/vision.h"
#include "tests/golden/vision/vision_rig.h"
#include "tests/vision_folder.h"

/* A folder, and what the hub's sizes ask of the rest of config.json; 0: nothing. */
struct vision_hub {
    const char *name;
    uint32_t image_size, patch_size, tokens, scale;
};

static inline void vision_hub_set(cJSON *o, const char *key, uint32_t value)
{
    if (!value)
        return;
    cJSON_DeleteItemFromObjectCaseSensitive(o, key);
    assert_non_null(cJSON_AddNumberToObject(o, key, value));
}

/* `config`, which ends here, with the hub's sizes, and `preprocessor`. */
static inline struct vision *vision_hub_config(const struct vision_hub *f, cJSON *config,
                                               const cJSON *preprocessor)
{
    struct vision_folder d;
    struct vision *v;
    struct err e = ERR_INIT;
    assert_non_null(config);
    cJSON *tower = (cJSON *)(uintptr_t)model_file_vision_config(config);
    cJSON *of_timm = cJSON_GetObjectItemCaseSensitive(tower, "model_args");
    vision_hub_set(of_timm ? of_timm : tower, of_timm ? "img_size" : "image_size", f->image_size);
    vision_hub_set(tower, "patch_size", f->patch_size);
    vision_hub_set(config, "mm_tokens_per_image", f->tokens);
    vision_hub_set(config, "scale_factor", f->scale);
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

static inline struct vision *vision_hub_load(const struct vision_hub *f, const cJSON *preprocessor)
{
    return vision_hub_config(f, vision_json(f->name, "config.json"), preprocessor);
}
#endif
