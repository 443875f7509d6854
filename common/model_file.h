/* model_file.h - the small files of a model: its configuration, tokenizer, templates.
 *
 * A model is a folder, or a GGUF file. A GGUF file stands for the folder that Hugging Face's tools
 * would have written for the same model: `model.gguf/config.json`, generation_config.json,
 * tokenizer.json and tokenizer_config.json are there, made from what the file says of itself, and
 * nobody above needs to know which it is. Whoever reads a file of a model reads it through here. */
#ifndef COMMON_MODEL_FILE_H
#define COMMON_MODEL_FILE_H
#include "common/err.h"
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

bool model_file_exists(const char *path);
/* As file_read() and json_load() of common/json.h. */
char *model_file_read(const char *path, size_t max, size_t *n, struct err *e);
cJSON *model_file_json(const char *path, size_t max, struct err *e);
/* The path is a model's: a folder with config.json, or a GGUF file that is the first of its model.
 */
bool model_is_one(const char *path);
#endif
