/* model_file.h - the small files of a model: its configuration, tokenizer, templates.
 *
 * A model is a folder, or a GGUF file. A GGUF file stands for the folder that Hugging Face's tools
 * would have written for the same model: `model.gguf/config.json`, generation_config.json,
 * tokenizer.json and tokenizer_config.json are there, made from what the file says of itself, and
 * no caller needs to know which it is. Every file of a model is read through here. */
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
/* Where the config.json of a model that reads more than text says what its text model is:
 * text_config, or llm_config (InternVL); `config` itself where there is neither. */
const cJSON *model_file_text_config(const cJSON *config);
/* The path is a model's: a folder with config.json, or a GGUF file that is the first of its model.
 */
bool model_is_one(const char *path);
#endif
