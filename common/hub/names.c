#include "common/hub/names.h"
#include <stdio.h>
#include <string.h>

#define ALNUM "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

bool hub_is_repository(const char *id)
{
    const char *slash = strchr(id, '/');
    return *id && *id != '.' && *id != '/' && !strstr(id, "..") &&
           !(slash && strchr(slash + 1, '/')) && strspn(id, ALNUM "-_./") == strlen(id) &&
           id[strlen(id) - 1] != '/' && strlen(id) < HUB_NAME_MAX;
}

bool hub_is_packed(const char *id, char repository[HUB_NAME_MAX], const char **packing)
{
    const char *colon = strchr(id, ':');
    size_t n = colon ? (size_t)(colon - id) : HUB_NAME_MAX, k = colon ? strlen(colon + 1) : 0;
    if (n >= HUB_NAME_MAX || k == 0 || k > HUB_PACKING_MAX || strspn(colon + 1, ALNUM "_-") != k)
        return false;
    memcpy(repository, id, n);
    repository[n] = '\0';
    *packing = colon + 1;
    return hub_is_repository(repository);
}

bool hub_is_revision(const char *r)
{
    if (!*r || *r == '/' || strstr(r, "..") || strlen(r) >= HUB_NAME_MAX)
        return false;
    for (; *r; r++)
        if ((unsigned char)*r <= ' ' || *r == 0x7f)
            return false;
    return true;
}

bool hub_is_commit(const char *text)
{
    size_t n = strspn(text, "0123456789abcdef");
    return !text[n] && (n == 40 || n == 64);
}

bool hub_is_file_name(const char *name)
{
    if (!*name || *name == '.' || strchr(name, '/') || strlen(name) >= HUB_NAME_MAX)
        return false;
    for (; *name; name++)
        if ((unsigned char)*name < ' ' || *name == 0x7f)
            return false;
    return true;
}

void hub_folder(const char *id, char out[HUB_FOLDER_MAX])
{
    int n = snprintf(out, HUB_FOLDER_MAX, "models--");
    for (; *id && n < HUB_FOLDER_MAX - 3; id++)
        n += snprintf(out + n, (size_t)(HUB_FOLDER_MAX - n), *id == '/' ? "--" : "%c", *id);
}

int hub_etag(const char *header, char out[HUB_ETAG_MAX])
{
    const char *s = header;
    if (!strncmp(s, "W/", 2))
        s += 2;
    s += *s == '"';
    size_t n = strcspn(s, "\"");
    if (!n || n >= HUB_ETAG_MAX || *s == '.' || strspn(s, ALNUM "-_.") != n)
        return -1;
    memcpy(out, s, n);
    out[n] = '\0';
    return 0;
}

bool hub_is_companion(const char *name)
{
    static const char *const names[] = {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenizer.model",
        "tiktoken.model",
        "vocab.json",
        "merges.txt",
        "vocab.txt",
        "rwkv_vocab_v20230424.txt",
        "tokenizer.jsonl",
        "added_tokens.json",
        "special_tokens_map.json",
        "chat_template.jinja",
        "chat_template.json",
        "processor_config.json",
        "modules.json",
        "router_config.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
        "sparse_linear.pt", /* of BGE-M3 */
        "colbert_linear.pt",
        HUB_ADAPTER_CONFIG,
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

bool hub_is_module_file(const char *name)
{
    enum { FOLDER_MAX = 64 };
    static const char route[] = "document_";
    if (strncmp(name, route, sizeof(route) - 1) == 0)
        name += sizeof(route) - 1;
    const size_t digits = strspn(name, "0123456789"), folder = strspn(name, ALNUM "_");
    if (!digits || name[digits] != '_' || folder == digits + 1 || folder > FOLDER_MAX ||
        name[folder] != '/')
        return false;
    static const char *const own[] = {"tokenizer.json", "tokenizer_config.json", "vocab.txt",
                                      "special_tokens_map.json", "sentence_bert_config.json"};
    const char *file = name + folder + 1;
    bool first = false; /* a file of the module that reads texts (common/model/first_module.h) */
    for (size_t i = 0; *name == '0' && digits == 1 && i < sizeof(own) / sizeof(own[0]); i++)
        first |= !strcmp(file, own[i]);
    return first || !strcmp(file, "config.json") || !strcmp(file, HUB_WEIGHTS);
}

bool hub_is_template(const char *name)
{
    const size_t folder = strlen(HUB_TEMPLATES);
    if (strncmp(name, HUB_TEMPLATES, folder) != 0)
        return false;
    const size_t stem = strspn(name + folder, ALNUM "_-");
    return stem && strlen(name) < HUB_NAME_MAX && !strcmp(name + folder + stem, ".jinja");
}
