/* config_reader.h: values of an untrusted config.json, by key, checked for type and range. The first that is wrong
 * is recorded, and the reader is not ok from then on. A key that nobody asks for is refused by its name, but for
 * those known not to change a model. */
#ifndef NN_CONFIG_READER_H
#define NN_CONFIG_READER_H

#include "base/json.h"
#include "tally.h"

#define LARGEST_SIZE ((int64_t)1 << 40)

struct config_reader {
    const char *path;
    json_t *root;
    json_t *seen; /* the keys that were asked for */
    bool ok;
    double score_yarn;        /* "mscale_all_dim" of the last rule that was read */
    int64_t original_context; /* of the file, outside of rules; 0: it does not say */
};

void config_fail(struct config_reader *r, const char *key, const char *need);
json_t *config_value(struct config_reader *r, const char *key);
json_t *config_value_of(struct config_reader *r, const char *key, const char *other);
int64_t config_size(struct config_reader *r, const char *key, const char *other, int64_t fallback);
int64_t config_count(struct config_reader *r, const char *key, int64_t fallback);
bool config_is_null(struct config_reader *r, const char *key);
double config_real(struct config_reader *r, const char *key, const char *other, double fallback);
bool config_truth(struct config_reader *r, const char *key, bool fallback);
void config_demand_text(struct config_reader *r, const char *key, const char *known, const char *also);
void config_demand_truth(struct config_reader *r, const char *key, bool known);
void config_refuse_unknown(struct config_reader *r, const char *within, const char *type);
void config_demand_number(struct config_reader *r, const char *key, double known);
void config_demand_same(struct config_reader *r, const char *key, double value);

#endif
