/* download.h - a model of the hub, into the hub's cache of this machine (store.h).
 *
 * Fetched are the files the programs read: names.h' companions, then model.safetensors, or the
 * files of its index, or an adapter's; or a model in GGUF and nothing else: the one that the id
 * names (org/name:Q4_K_M), else, where there are no safetensors, Q4_K_M or the only one. One after
 * the other, so that a snapshot that has its weights
 * has the rest too. The revision's ref is written last. */
#ifndef COMMON_HUB_DOWNLOAD_H
#define COMMON_HUB_DOWNLOAD_H
#include "common/err.h"
#include "common/hub/settings.h"

/* Nothing is asked of the network when the cache already has the revision whole. `revision` NULL or
 * "": main. `stop_fd` readable: stop soon, and keep what came. Each request is tried 5 times, 5 s
 * apart; a try that brought bytes does not count. Logs what it does. Errors say what to do. */
int hub_download(const struct hub_settings *s, const char *id, const char *revision, int stop_fd,
                 struct err *e);
#endif
