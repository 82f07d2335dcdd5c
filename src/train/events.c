/* events.c: the few messages of TensorBoard's files, encoded by hand.
 *
 *     record    length u64, masked CRC32C of the length, message, masked CRC32C of the message; little-endian
 *     Event     1 wall_time double, 2 step varint, 3 file_version text, 5 Summary
 *     Summary   1 Value, once for each
 *     Value     1 tag text, 2 simple_value float, 8 TensorProto, 9 SummaryMetadata {1 PluginData {1 plugin_name text}}
 *     Tensor    1 dtype varint (7: texts), 2 shape {2 dim {1 size varint}}, 8 text, once for each
 *
 * A field of a protocol buffer is a key (number * 8 + type) and its value: type 0 a varint, 1 eight bytes, 5 four
 * bytes, 2 a length as a varint and that many bytes. */
#include "train/events.h"

#include <string.h>

#include "base/crc.h"
#include "base/error.h"
#include "base/float_bits.h"
#include "base/memory.h"

enum { VARINT = 0, EIGHT_BYTES = 1, LENGTH = 2, FOUR_BYTES = 5 };

struct buffer {
    unsigned char *data;
    size_t n, capacity;
    bool is_out_of_memory;
};

static void put(struct buffer *b, const void *data, size_t n) {
    if (b->is_out_of_memory) return;
    if (b->n + n > b->capacity) {
        size_t capacity = 2 * (b->n + n) + 64;
        unsigned char *larger = memory_new(capacity);
        if (!larger) {
            b->is_out_of_memory = true;
            return;
        }
        if (b->n) memcpy(larger, b->data, b->n);
        memory_free(b->data);
        b->data = larger;
        b->capacity = capacity;
    }
    memcpy(b->data + b->n, data, n);
    b->n += n;
}

/* The n lowest bytes, lowest first. */
static void put_number(struct buffer *b, uint64_t value, int n) {
    unsigned char bytes[8];
    for (int i = 0; i < n; i++) bytes[i] = (unsigned char)(value >> 8 * i);
    put(b, bytes, (size_t)n);
}

static void put_varint(struct buffer *b, uint64_t value) {
    for (; value >= 128; value >>= 7) put_number(b, value % 128 + 128, 1);
    put_number(b, value, 1);
}

static void put_key(struct buffer *b, int field, int type) { put_varint(b, (uint64_t)(field * 8 + type)); }

static void put_integer(struct buffer *b, int field, int64_t value) {
    put_key(b, field, VARINT);
    put_varint(b, (uint64_t)value);
}
static void put_double(struct buffer *b, int field, double value) {
    put_key(b, field, EIGHT_BYTES);
    put_number(b, f64_bits(value), 8);
}
static void put_float(struct buffer *b, int field, float value) {
    put_key(b, field, FOUR_BYTES);
    put_number(b, f32_bits(value), 4);
}
static void put_text(struct buffer *b, int field, const char *text) {
    put_key(b, field, LENGTH);
    put_varint(b, strlen(text));
    put(b, text, strlen(text));
}
/* A message within a message; frees the inner one. */
static void put_message(struct buffer *b, int field, struct buffer *inner) {
    put_key(b, field, LENGTH);
    put_varint(b, inner->n);
    if (inner->n) put(b, inner->data, inner->n);
    b->is_out_of_memory = b->is_out_of_memory || inner->is_out_of_memory;
    memory_free(inner->data);
    *inner = (struct buffer){0};
}

/* TensorFlow's mask: the plain CRC of data that contains its own CRC would be a constant. */
static uint32_t masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

/* The record of an event, which is freed. */
static struct event_record record(struct buffer *event) {
    struct buffer b = {0};
    put_number(&b, event->n, 8);
    if (!b.is_out_of_memory) put_number(&b, masked(crc32c(0, b.data, 8)), 4);
    if (event->n) put(&b, event->data, event->n);
    put_number(&b, masked(crc32c(0, event->data, event->n)), 4);
    bool ok = !b.is_out_of_memory && !event->is_out_of_memory;
    memory_free(event->data);
    if (ok) return (struct event_record){b.data, b.n};
    memory_free(b.data);
    error_memory(b.n, "an event of the log");
    return (struct event_record){0};
}

static void event_begin(struct buffer *event, double time_s, int64_t step) {
    put_double(event, 1, time_s);
    if (step) put_integer(event, 2, step);
}

struct event_record event_version(double time_s) {
    struct buffer event = {0};
    event_begin(&event, time_s, 0);
    put_text(&event, 3, "brain.Event:2");
    return record(&event);
}

struct event_record event_scalars(double time_s, int64_t step, const struct event_value *values, int n) {
    struct buffer event = {0}, summary = {0}, value = {0};
    for (int i = 0; i < n; i++) {
        put_text(&value, 1, values[i].tag);
        put_float(&value, 2, (float)values[i].value);
        put_message(&summary, 1, &value);
    }
    event_begin(&event, time_s, step);
    put_message(&event, 5, &summary);
    return record(&event);
}

struct event_record event_text(double time_s, int64_t step, const char *tag, const char *text) {
    enum { TEXTS = 7 };
    struct buffer event = {0}, summary = {0}, value = {0}, tensor = {0}, shape = {0}, size = {0}, metadata = {0},
                  plugin = {0};
    put_integer(&size, 1, 1);
    put_message(&shape, 2, &size);
    put_integer(&tensor, 1, TEXTS);
    put_message(&tensor, 2, &shape);
    put_text(&tensor, 8, text);
    put_text(&plugin, 1, "text");
    put_message(&metadata, 1, &plugin);
    put_text(&value, 1, tag);
    put_message(&value, 8, &tensor);
    put_message(&value, 9, &metadata);
    put_message(&summary, 1, &value);
    event_begin(&event, time_s, step);
    put_message(&event, 5, &summary);
    return record(&event);
}

/* ---- Reading ---- */

static uint64_t number_at(const unsigned char *data, int bytes) {
    uint64_t n = 0;
    for (int i = bytes - 1; i >= 0; i--) n = n << 8 | data[i];
    return n;
}

bool events_whole(int fd, struct file_place at, size_t bytes, size_t *whole) {
    enum { HEAD = 12, TAIL = 4 };
    unsigned char head[HEAD];
    *whole = 0;
    while (bytes - *whole >= HEAD + TAIL) {
        if (!file_read_at(fd, at, head, HEAD, *whole)) return false;
        uint64_t length = number_at(head, 8);
        if (number_at(head + 8, 4) != masked(crc32c(0, head, 8)) || length > bytes - *whole - HEAD - TAIL) break;
        *whole += HEAD + (size_t)length + TAIL;
    }
    return true;
}
