/* recompute.h: layers under a checkpoint policy that read more than one tensor. */
#ifndef AUTOGRAD_RECOMPUTE_H
#define AUTOGRAD_RECOMPUTE_H

#include "tally.h"

/* tl_checkpoint_layers for layers that share tensors: the first n_through of in[0] .. in[n_in - 1] go through all
 * layers, each of which fills out[0] .. out[n_through - 1], and each layer gets the others as they are. Every
 * checkpoint keeps them, so that a layer that runs again has the tensors of its own pass. At most 16 in all, and 8
 * that go through. out: what the last layer gave. */
typedef bool (*checkpoint_layer_fn)(void *context, int layer, tl_tensor **in, int n_in, tl_tensor **out);
bool checkpoint_layers(checkpoint_layer_fn layer, void *context, int n_layers, tl_checkpoint_policy policy, int k,
                       tl_tensor **in, int n_in, int n_through, tl_tensor **out);

#endif
