/* config_keys.h: keys of config.json that families share (config_positions.c), and each key of a family's table
 * (config_keys.c), read and written. Writing: false without memory. */
#ifndef NN_CONFIG_KEYS_H
#define NN_CONFIG_KEYS_H

#include "nn/architecture.h"
#include "nn/config_reader.h"

void config_read_rope(struct config_reader *r, const struct architecture *a, tl_model_config *c);
bool config_write_rope(json_t *root, const struct architecture *a, const tl_model_config *c);
void config_read_window(struct config_reader *r, const struct architecture *a, tl_model_config *c);
bool config_write_window(json_t *root, const struct architecture *a, const tl_model_config *c);
void config_read_plain(struct config_reader *r, const struct key *k, tl_model_config *c);
bool config_write_plain(json_t *root, const struct key *k, const tl_model_config *c);
void config_read_key(struct config_reader *r, const struct key *k, tl_model_config *c);
bool config_write_key(json_t *root, const struct key *k, const tl_model_config *c);

#endif
