/* pieces.h: the elements of a tensor, in row-major order, for writers of files. */
#ifndef FILE_PIECES_H
#define FILE_PIECES_H

#include "tally.h"

/* Calls take(context, data, bytes) with the elements in the tensor's own dtype until it returns false. A tensor that
 * is dense in host memory is one piece. Others are fetched through a buffer of 4 MiB, made on first use; a piece then
 * ends at the end of a row of the last axis, or a multiple of 4 MiB / element size after its beginning. No tensor on
 * meta. False: recorded, or take returned false. */
struct pieces {
    char *buffer; /* NULL at first */
};
bool pieces_each(struct pieces *p, tl_tensor *x, bool (*take)(void *context, const void *data, size_t bytes),
                 void *context);
void pieces_close(struct pieces *p);

#endif
