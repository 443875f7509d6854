/* The quantisation of a checkpoint: the file that describes it, and whether --quantize agrees. */
#include "common/json/json.h"
#include "common/model/model_file.h"
#include "model-server/model/checkpoint/quant/stored_method.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---------------------------------------------------------------- where it is written */

/* MLX has `quantization`; newer files repeat it. */
static const cJSON *written_in(const cJSON *o)
{
    static const char *const keys[] = {"quantization_config", "compression_config", "quantization"};
    const cJSON *q = NULL;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && !q; i++)
        q = json_get(o, keys[i]);
    return q;
}

/* `alone`: the file contains nothing else; else the method if it names none. */
static int read_file(struct stored *s, const char *dir, const char *name, const char *alone,
                     struct err *e)
{
    struct config c;
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= PATH_MAX)
        return err_set(e, ERR_VALIDATION, "%.200s...: path too long", dir);
    if (alone && !model_file_exists(path))
        return 0;
    if (config_open(&c, path, NULL, e))
        return -1;
    const cJSON *q = alone ? c.root : NULL;
    /* most files of models with vision have it beside `text_config` */
    const cJSON *places[] = {c.root, c.file};
    for (int i = 0; i < 2 && !q; i++)
        q = written_in(places[i]);
    if (q && !cJSON_IsObject(q))
        config_fail(&c, "`quantization_config` is no object");
    else if (q)
        stored_method_read(&c, q, alone ? alone : "an unnamed method", s);
    config_close(&c);
    return c.failed ? -1 : 0;
}

int stored_read(struct stored *s, const char *dir, struct err *e)
{
    *s = (struct stored){0};
    if (read_file(s, dir, "config.json", NULL, e))
        return -1;
    if (!s->method && read_file(s, dir, "quantize_config.json", "gptq", e))
        return -1;
    if (!s->method && read_file(s, dir, "hf_quant_config.json", "modelopt", e))
        return -1;
    return s->method ? 0 : read_file(s, dir, "quant_config.json", "awq", e);
}

/* ---------------------------------------------------------------- what the user says */

static bool stored_word(const char *word)
{
    static const char *const words[] = {"gptq",
                                        "awq",
                                        "marlin",
                                        "compressed-tensors",
                                        "bitsandbytes",
                                        "bitsandbytes-nf4",
                                        "bitsandbytes-fp4"};
    for (size_t i = 0; word && i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}

static bool means(const struct stored *s, const char *word)
{
    for (const char *const *w = s->format->words; *w; w++)
        if (strcmp(*w, word) == 0)
            return strcmp(word, "fp8") != 0 || s->is_float;
    return false;
}

int stored_agree(const struct stored *s, const char *word, enum quant quant, enum quant *scheme,
                 struct err *e)
{
    *scheme = s->method && !s->format->again ? QUANT_NONE : quant;
    if (!s->method && stored_word(word))
        return err_set(e, ERR_VALIDATION,
                       "--quantize %s: this checkpoint is not stored quantised (no "
                       "quantization_config); eetq, w8a8, int4 and fp8 are made at load",
                       word);
    if (s->method && s->format->again && !stored_word(word))
        return 0;
    if (!s->method || (word ? means(s, word) || (!quant && !stored_word(word)) : !quant))
        return 0;
    return err_set(e, ERR_VALIDATION,
                   "--quantize %s: the weights of this checkpoint are stored by %s already; leave "
                   "it out",
                   word ? word : quant_name(quant), s->method);
}
