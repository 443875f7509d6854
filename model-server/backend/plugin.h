/* plugin.h - how a backend that needs a vendor's libraries is loaded: backend-NAME.so with one
 * symbol, BACKEND_PLUGIN_SYMBOL, of type backend_plugin_fn. The number in its name changes with
 * this struct. `abi`, a checksum of the headers, guards everything else, so plugins are built and
 * installed together with the program. */
#ifndef MODEL_SERVER_BACKEND_PLUGIN_H
#define MODEL_SERVER_BACKEND_PLUGIN_H
#include "backend_abi.h"
#include "model-server/backend/backend.h"

#define BACKEND_PLUGIN_SYMBOL "backend_plugin_2"

struct backend_plugin {
    uint32_t abi;        /* BACKEND_ABI when it was built */
    const char *version; /* of the program it belongs to */
    const struct backend_ops *ops;
    /* 0 if there is a device that can be opened; else the reason, in one line. */
    int (*available)(struct err *e);
};
typedef const struct backend_plugin *backend_plugin_fn(void);

/* Loads `path` once for the life of the process. NULL with one line that names the file. */
const struct backend_plugin *backend_plugin_load(const char *path, struct err *e);
#endif
