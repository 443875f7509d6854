/* adapter_list.h - parses `--lora-adapters`: names and folders of adapters. */
#ifndef MODEL_SERVER_ADAPTER_LIST_H
#define MODEL_SERVER_ADAPTER_LIST_H
#include "common/flag/flag.h"
#include "model-server/model/lora/adapters.h"

struct adapter_list {
    struct adapter_source *v; /* [n]; names and folders are owned */
    uint32_t n;
};

/* Parses items in TGI's forms: `id`, `id@revision`, `name=path`, `name=path@revision`. Ids and
 * paths are resolved by hub_resolve(). `skip_missing`: an adapter whose files are not all there is
 * logged and left out, and the others are optional. ERR_VALIDATION names the item. The caller calls
 * adapter_list_free() even after an error. */
int adapter_list_read(struct adapter_list *l, const struct flag_list *items, bool skip_missing,
                      struct err *e);
/* Appends the adapters inside the model's checkpoint in `dir`, under the names of its config.json.
 * ERR_VALIDATION: `l` has such a name. */
int adapter_list_inside(struct adapter_list *l, const char *dir, struct err *e);
void adapter_list_free(struct adapter_list *l);
#endif
