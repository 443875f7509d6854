#include "common/model/first_module.h"
#include "common/json/json.h"
#include "common/model/model_file.h"
#include "common/text.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SMALL_JSON = 1024 * 1024, FOLDER_MAX = 64 };

static bool in(const char *dir, const char *name, char out[PATH_MAX])
{
    return snprintf(out, PATH_MAX, "%s/%s", dir, name) < PATH_MAX;
}

static bool there(const char *dir, const char *name)
{
    char path[PATH_MAX];
    return in(dir, name, path) && access(path, F_OK) == 0;
}

/* A name of letters, digits and _, so that it is no path. */
static bool plain_name(const char *s)
{
    size_t n = 0;
    while ((s[n] >= '0' && s[n] <= '9') || (s[n] >= 'A' && s[n] <= 'Z') ||
           (s[n] >= 'a' && s[n] <= 'z') || s[n] == '_')
        n++;
    return n && n < FOLDER_MAX && !s[n];
}

/* The first module's class, without its package, and its folder, which is "" for `dir` itself.
 * False: `dir` has no modules.json, or none that can be read, which sentence_load() reports. */
static bool first(const char *dir, char class[FOLDER_MAX], char folder[FOLDER_MAX])
{
    char path[PATH_MAX];
    struct err e = ERR_INIT;
    if (!there(dir, "modules.json") || !in(dir, "modules.json", path))
        return false;
    cJSON *j = json_load(path, SMALL_JSON, &e);
    const cJSON *m = cJSON_IsArray(j) ? j->child : NULL;
    const char *type = json_str(m, "type", ""), *name = json_str(m, "path", "");
    const char *dot = strrchr(type, '.');
    snprintf(class, FOLDER_MAX, "%s", dot ? dot + 1 : type);
    snprintf(folder, FOLDER_MAX, "%s", plain_name(name) ? name : "");
    cJSON_Delete(j);
    return m != NULL;
}

bool first_module_folder(const char *dir, char out[PATH_MAX])
{
    char class[FOLDER_MAX], folder[FOLDER_MAX];
    return first(dir, class, folder) && *folder && in(dir, folder, out);
}

bool first_module_static(const char *dir)
{
    char class[FOLDER_MAX], folder[FOLDER_MAX], own[PATH_MAX];
    if (there(dir, "config.json") || !first(dir, class, folder) ||
        strcmp(class, "StaticEmbedding") != 0)
        return false;
    return !*folder || (in(dir, folder, own) && !there(own, "config.json"));
}

const char *first_module_file(const char *path, char moved[PATH_MAX])
{
    static const char *const names[] = {"config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "sentence_bert_config.json",
                                        "preprocessor_config.json",
                                        "processor_config.json",
                                        "chat_template.jinja",
                                        "chat_template.json"};
    const char *slash = strrchr(path, '/');
    char dir[PATH_MAX], own[PATH_MAX];
    bool known = false;
    for (size_t i = 0; slash && i < sizeof(names) / sizeof(names[0]); i++)
        known |= strcmp(slash + 1, names[i]) == 0;
    if (!known || access(path, F_OK) == 0)
        return path;
    if (snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path) >= PATH_MAX ||
        !first_module_folder(dir, own) || !in(own, slash + 1, moved))
        return path;
    return access(moved, F_OK) == 0 ||
                   (strcmp(slash + 1, "tokenizer.json") == 0 && tokenizer_folder_has(own))
               ? moved
               : path;
}
