/* vision_folder.h - a temporary folder with the files that define a model's image processing. */
#ifndef TESTS_VISION_FOLDER_H
#define TESTS_VISION_FOLDER_H
#include "tests/unit/test.h"
#include <cjson/cJSON.h>
#include <string.h>
#include <unistd.h>

struct vision_folder {
    char path[64];
};

static inline void vision_write(const struct vision_folder *d, const char *file, const char *text)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", d->path, file);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
}

static inline void vision_write_json(const struct vision_folder *d, const char *file,
                                     const cJSON *j)
{
    char *text = cJSON_PrintUnformatted(j);
    assert_non_null(text);
    vision_write(d, file, text);
    cJSON_free(text);
}

static inline void vision_folder_make(struct vision_folder *d)
{
    snprintf(d->path, sizeof(d->path), "/tmp/vision-XXXXXX");
    assert_non_null(mkdtemp(d->path));
}

static inline void vision_folder_remove(const struct vision_folder *d)
{
    static const char *const files[] = {"config.json", "preprocessor_config.json",
                                        "processor_config.json"};
    char path[128];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", d->path, files[i]);
        unlink(path);
    }
    rmdir(d->path);
}
#endif
