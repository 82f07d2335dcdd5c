/* op_id.h: the number of each op, its row in op_list.h: the index of kernels and of rules. */
#ifndef SPEC_OP_ID_H
#define SPEC_OP_ID_H

enum op_id {
#define OP(kind, name) OP_ID_##name,
#include "spec/op_list.h"
#undef OP
    OP_COUNT
};

#endif
