/* download.h - downloads a model from the hub into the local cache (store.h).
 *
 * It fetches the files the programs read: the companions listed in names.h, then model.safetensors,
 * or the files of its index, or an adapter's weights. Or only a GGUF model: the one in the id
 * (org/name:Q4_K_M), or, without safetensors, Q4_K_M or the only one. Files are fetched in this
 * order, so a snapshot that has its weights is complete. The revision's ref is written last. */
#ifndef COMMON_HUB_DOWNLOAD_H
#define COMMON_HUB_DOWNLOAD_H
#include "common/err.h"
#include "common/hub/settings.h"

/* No network access if the cache already has the complete revision. `revision` NULL or "": main.
 * `stop_fd` readable: stop soon, keeping partial files. Each request is tried 5 times, 5 s apart;
 * attempts that brought bytes do not count. Logs its progress. Errors suggest a remedy. */
int hub_download(const struct hub_settings *s, const char *id, const char *revision, int stop_fd,
                 struct err *e);
#endif
