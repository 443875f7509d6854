/* model_file.h - access to the small files of a model: configuration, tokenizer, templates.
 *
 * A model is a folder, or a GGUF file. A GGUF file acts as the folder that Hugging Face's tools
 * would have written for this model: `model.gguf/config.json`, generation_config.json,
 * tokenizer.json and tokenizer_config.json exist, generated from its metadata. Callers need not
 * distinguish the two. tokenizer.json of a folder is generated from older tokenizer files where it
 * is missing, and files of a first module's folder are found (common/model/first_module.h). Every
 * file of a model is read through this module. */
#ifndef COMMON_MODEL_FILE_H
#define COMMON_MODEL_FILE_H
#include "common/err.h"
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

/* True also for a file that a damaged GGUF file should have: reading it reports the error. */
bool model_file_exists(const char *path);
/* As file_read() and json_load() of common/json/json.h; of a config.json with a `thinker_config`
 * (Qwen Omni) or a `vlm_config` (ColPali), that object, which then has the `architectures` of the
 * latter's file. */
char *model_file_read(const char *path, size_t max, size_t *n, struct err *e);
cJSON *model_file_json(const char *path, size_t max, struct err *e);
/* The text model's part of a multimodal config.json: text_config, or llm_config (InternVL);
 * `config` itself if there is neither. */
const cJSON *model_file_text_config(const cJSON *config);
/* That of its vision tower: vision_config, or vit_config (Ovis 2.5); NULL if there is neither. */
const cJSON *model_file_vision_config(const cJSON *config);
/* True if the path is a model: a folder with config.json or with a table of vectors, or a GGUF file
 * that is the first of its model. */
bool model_is_one(const char *path);
/* Generates the tokenizer.json of a folder that has none (common/tokenizer/folder.c), as
 * transformers' convert_slow_tokenizer.py does, from the first of
 * - tokenizer.model: SentencePiece (Llama 1 and 2, Mistral, InternLM 2, Baichuan) or tiktoken
 * (Llama 3)
 * - tiktoken.model: tiktoken (Kimi, Moonlight)
 * - vocab.json and merges.txt: byte-level BPE (GPT-2 and its descendants, Qwen 2)
 * - vocab.txt: WordPiece (BERT)
 * with tokenizer_config.json, added_tokens.json and special_tokens_map.json. */
struct buf;
struct gguf_set;
/* Calls `use` with the open files of a GGUF model (gguf_is_file()); ERR_VALIDATION also where the
 * file is no model, but an adapter or a projector. Returns what `use` returns. */
int model_file_gguf(const char *file,
                    int (*use)(const struct gguf_set *s, void *arg, struct err *e), void *arg,
                    struct err *e);
/* True if the folder has no tokenizer.json, but one of these. */
bool tokenizer_folder_has(const char *dir);
/* Appends the text of tokenizer.json to `out`. ERR_VALIDATION begins with the file's path. */
int tokenizer_folder_make(const char *dir, struct buf *out, struct err *e);
#endif
