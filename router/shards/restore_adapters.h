/* restore_adapters.h - gives shards that came back the adapters that those before them had. */
#ifndef ROUTER_SHARDS_RESTORE_ADAPTERS_H
#define ROUTER_SHARDS_RESTORE_ADAPTERS_H
#include "common/err.h"
#include "router/shards/served_adapters.h"
#include "router/shards/shards.h"

/* After LoadAdapter (`loads`) or UnloadAdapter: -1 with the error of the first rank that refused;
 * 0: all ranks did it. Unloading what is not loaded is no error. */
int adapter_refusal(const struct fan *f, bool loads, struct err *e);
/* Blocks, as shards_connect(). Replays the changes of `list` into new shards, which started with
 * `theirs`: loads what was loaded at run time, unloads what was unloaded, and what has other files
 * than before. `*out`: a new reference to the list of adapters now present. `keep`: adapters that
 * were present at the start and are missing now stay in it, `leaving`, so that their names do not
 * mean the model. -1: a shard is lost, or out of memory. */
int restore_adapters(struct served_adapters *list, const struct served_adapters *theirs, bool keep,
                     struct shards *of, struct served_adapters **out, struct err *e);
#endif
