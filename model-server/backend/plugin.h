/* plugin.h - how a backend that needs a vendor's libraries is found: backend-NAME.so with one
 * symbol, BACKEND_PLUGIN_SYMBOL, of type backend_plugin_fn. The number in its name changes with
 * this struct; everything that crosses the seam is guarded by `abi`, a checksum of the headers that
 * say it, so that plugins are built and installed together with the program. */
#ifndef MODEL_SERVER_BACKEND_PLUGIN_H
#define MODEL_SERVER_BACKEND_PLUGIN_H
#include "backend_abi.h"
#include "model-server/backend/backend.h"

#define BACKEND_PLUGIN_SYMBOL "backend_plugin_2"

struct backend_plugin {
    uint32_t abi;        /* BACKEND_ABI when it was built */
    const char *version; /* of the program it belongs to */
    const struct backend_ops *ops;
    /* 0 if there is a device that can be opened; else why not, in one line. */
    int (*available)(struct err *e);
};
typedef const struct backend_plugin *backend_plugin_fn(void);

/* Load `path` once for the life of the process. NULL with one line that names the file. */
const struct backend_plugin *backend_plugin_load(const char *path, struct err *e);
#endif
