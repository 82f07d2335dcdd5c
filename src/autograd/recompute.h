/* recompute.h: layers under a checkpoint policy that read more than one tensor. */
#ifndef AUTOGRAD_RECOMPUTE_H
#define AUTOGRAD_RECOMPUTE_H

#include "tally.h"

/* tl_checkpoint_layers for layers that share tensors: in[0] goes through all layers, and each gets in[1] .. in[n_in
 * - 1] as they are. Every checkpoint keeps them, so that a layer that runs again has the tensors of its own pass. At
 * most 16. */
typedef tl_tensor *(*checkpoint_layer_fn)(void *context, int layer, tl_tensor **in, int n_in);
tl_tensor *checkpoint_layers(checkpoint_layer_fn layer, void *context, int n_layers, tl_checkpoint_policy policy, int k,
                             tl_tensor **in, int n_in);

#endif
