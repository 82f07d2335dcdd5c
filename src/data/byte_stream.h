/* byte_stream.h: the bytes of a file from first to last, decompressed if it is gzip or zstd.
 *
 * What a file is, its first bytes say, not its name. Memory is bounded: a megabyte or two, and for zstd the window
 * of the file, at most 128 MiB. A thread decompresses ahead of the reader. Formats that cannot be read are refused
 * with what to do instead.
 */
#ifndef DATA_BYTE_STREAM_H
#define DATA_BYTE_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct byte_stream;
/* "-" is standard input; *stop (may be NULL) ends a wait for it, with an error. NULL on error, which is recorded. */
struct byte_stream *byte_stream_open(const char *path, const atomic_bool *stop);
/* Up to `room` bytes (not 0); *n 0: the end. False: recorded, with the file and the byte. */
bool byte_stream_read(struct byte_stream *s, void *to, size_t room, size_t *n);
/* Bytes of the file itself that were used so far. */
uint64_t byte_stream_used(const struct byte_stream *s);
void byte_stream_close(struct byte_stream *s); /* NULL allowed */

#endif
