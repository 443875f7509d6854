/* names.h - what the Hugging Face hub calls things, and which of a repository's files are read
 * here. Pure: no file, no network. Everything that comes from outside and becomes part of a path is
 * judged by one of these. */
#ifndef COMMON_HUB_NAMES_H
#define COMMON_HUB_NAMES_H
#include <stdbool.h>
#include <stddef.h>

enum { HUB_COMMIT_MAX = 80, HUB_ETAG_MAX = 160, HUB_FOLDER_MAX = 512, HUB_NAME_MAX = 200 };

#define HUB_WEIGHTS         "model.safetensors"
#define HUB_INDEX           "model.safetensors.index.json"
#define HUB_ADAPTER_CONFIG  "adapter_config.json"
#define HUB_USUAL_PACKING   "Q4_K_M" /* of models in GGUF that come in several */
#define HUB_ADAPTER_WEIGHTS "adapter_model.safetensors"
/* What torch.save() writes: read where there are no safetensors. */
#define HUB_TORCH_WEIGHTS "pytorch_model.bin"
#define HUB_TORCH_INDEX   "pytorch_model.bin.index.json"
#define HUB_TORCH_ADAPTER "adapter_model.bin"

/* "org/name" or "name" of harmless characters; anything else was meant as a path. */
bool hub_is_repository(const char *id);
/* "org/name:Q4_K_M", as llama-server has it: a repository, and how the model in GGUF that is meant
 * is packed. False: it is none. `repository` gets its name, *packing points into `id`. */
enum { HUB_PACKING_MAX = 32 };
bool hub_is_packed(const char *id, char repository[HUB_NAME_MAX], const char **packing);
/* Branch, tag or commit; "refs/pr/1" has slashes. Never a way out of a folder. */
bool hub_is_revision(const char *revision);
/* A whole commit: hexadecimal digits, 40 (sha-1) or 64. */
bool hub_is_commit(const char *text);
/* The name of a file in a snapshot's top folder: one part, not hidden. */
bool hub_is_file_name(const char *name);

/* "models--org--name": the folder of a repository in the cache. */
void hub_folder(const char *id, char out[HUB_FOLDER_MAX]);

/* W/"abc" and "abc" are abc, as huggingface_hub names blobs. -1: not usable as a file name. */
int hub_etag(const char *header, char out[HUB_ETAG_MAX]);

/* A file that the programs read beside the weights: configuration, tokenizer, template, index. What
 * is not listed (other frameworks' weights, code) is never fetched. */
bool hub_is_companion(const char *name);
/* "1_Pooling/config.json", "2_Dense/model.safetensors": of a module of sentence-transformers, a
 * folder with a number in front, the only kind of folder that is looked into. */
bool hub_is_module_file(const char *name);
#endif
