/* names.h - names of the Hugging Face hub, and which files of a repository are used. Pure: no file,
 * no network. Every external name that becomes part of a path is validated here. */
#ifndef COMMON_HUB_NAMES_H
#define COMMON_HUB_NAMES_H
#include <stdbool.h>
#include <stddef.h>

enum { HUB_COMMIT_MAX = 80, HUB_ETAG_MAX = 160, HUB_FOLDER_MAX = 512, HUB_NAME_MAX = 200 };

#define HUB_WEIGHTS         "model.safetensors"
#define HUB_INDEX           "model.safetensors.index.json"
#define HUB_ADAPTER_CONFIG  "adapter_config.json"
#define HUB_USUAL_PACKING   "Q4_K_M" /* default quantisation of GGUF models */
#define HUB_ADAPTER_WEIGHTS "adapter_model.safetensors"
/* Written by torch.save(): used if there are no safetensors. */
#define HUB_TORCH_WEIGHTS "pytorch_model.bin"
#define HUB_TORCH_INDEX   "pytorch_model.bin.index.json"
#define HUB_TORCH_ADAPTER "adapter_model.bin"

/* "org/name" or "name" of safe characters; anything else is a path. */
bool hub_is_repository(const char *id);
/* "org/name:Q4_K_M", as in llama-server: a repository and the quantisation of a GGUF model. False:
 * not of this form. `repository` is set to its name, *packing points into `id`. */
enum { HUB_PACKING_MAX = 32 };
bool hub_is_packed(const char *id, char repository[HUB_NAME_MAX], const char **packing);
/* Branch, tag or commit; "refs/pr/1" has slashes. Cannot escape a folder. */
bool hub_is_revision(const char *revision);
/* A full commit hash: 40 (SHA-1) or 64 hexadecimal digits. */
bool hub_is_commit(const char *text);
/* A file name in a snapshot's top folder: one component, not hidden. */
bool hub_is_file_name(const char *name);

/* "models--org--name": the folder of a repository in the cache. */
void hub_folder(const char *id, char out[HUB_FOLDER_MAX]);

/* Normalises W/"abc" and "abc" to abc, as huggingface_hub names blobs. -1: not usable as a file
 * name. */
int hub_etag(const char *header, char out[HUB_ETAG_MAX]);

/* A file read beside the weights: configuration, tokenizer, template, index. Unlisted files (other
 * frameworks' weights, code) are never fetched. */
bool hub_is_companion(const char *name);
/* "1_Pooling/config.json", "2_Dense/model.safetensors": files of sentence-transformers modules, in
 * folders with a numeric prefix; "document_1_SpladePooling/config.json" of a Router. */
bool hub_is_module_file(const char *name);
/* "additional_chat_templates/tool_use.jinja": a chat template with a name. No other subfolders than
 * these two kinds are read. */
#define HUB_TEMPLATES "additional_chat_templates/"
bool hub_is_template(const char *name);
#endif
