/* adapter_list.h - what `--lora-adapters` says: names and folders. */
#ifndef MODEL_SERVER_ADAPTER_LIST_H
#define MODEL_SERVER_ADAPTER_LIST_H
#include "common/flag.h"
#include "model-server/model/adapters.h"

struct adapter_list {
    struct adapter_source *v; /* [n]; names and folders are owned */
    uint32_t n;
};

/* Items as TGI has them: `id`, `id@revision`, `name=path`, `name=path@revision`; ids and paths as
 * hub_resolve() takes them. ERR_VALIDATION names the item. adapter_list_free() after a failure too.
 */
int adapter_list_read(struct adapter_list *l, const struct flag_list *items, struct err *e);
void adapter_list_free(struct adapter_list *l);
#endif
