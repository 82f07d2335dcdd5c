"""torch.utils._pytree: nested tuples, lists and dicts as a list of leaves."""
import collections

_nodes = {}


class TreeSpec:
    """What is around the leaves."""

    def __init__(self, type, context, children_specs):
        self.type, self.context, self.children_specs = type, context, children_specs
        self.num_leaves = 1 if type is None else sum(c.num_leaves for c in children_specs)

    def is_leaf(self):
        return self.type is None

    def __eq__(self, other):
        return isinstance(other, TreeSpec) and (self.type, self.context, self.children_specs) == (
            other.type, other.context, other.children_specs)

    def __repr__(self):
        return "*" if self.is_leaf() else f"TreeSpec({self.type.__name__}, {self.context}, {self.children_specs})"


class LeafSpec(TreeSpec):
    def __init__(self):
        super().__init__(None, None, [])


def register_pytree_node(cls, flatten_fn, unflatten_fn, **_):
    """flatten_fn(x) -> (children, context); unflatten_fn(children, context) -> x"""
    _nodes[cls] = (flatten_fn, unflatten_fn)


_register_pytree_node = register_pytree_node
register_pytree_node(tuple, lambda x: (list(x), None), lambda children, _: tuple(children))
register_pytree_node(list, lambda x: (list(x), None), lambda children, _: list(children))
register_pytree_node(dict, lambda x: (list(x.values()), list(x)), lambda children, keys: dict(zip(keys, children)))
register_pytree_node(collections.OrderedDict, lambda x: (list(x.values()), list(x)),
                     lambda children, keys: collections.OrderedDict(zip(keys, children)))
register_pytree_node(collections.deque, lambda x: (list(x), None), lambda children, _: collections.deque(children))


def _kind(x):
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x), lambda y: (list(y), None), lambda children, _: type(x)(*children)
    found = _nodes.get(type(x))
    return (type(x), *found) if found else None


def tree_flatten(tree, is_leaf=None):
    """(leaves, spec)"""
    kind = None if is_leaf is not None and is_leaf(tree) else _kind(tree)
    if kind is None:
        return [tree], LeafSpec()
    children, context = kind[1](tree)
    parts = [tree_flatten(c, is_leaf) for c in children]
    spec = TreeSpec(kind[0], context, [s for _, s in parts])
    spec._unflatten = kind[2]
    return [x for leaves, _ in parts for x in leaves], spec


def tree_unflatten(leaves, treespec):
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten: {len(leaves)} leaves for a tree of {treespec.num_leaves}")
    if treespec.is_leaf():
        return leaves[0]
    children, at = [], 0
    for spec in treespec.children_specs:
        children.append(tree_unflatten(leaves[at:at + spec.num_leaves], spec))
        at += spec.num_leaves
    return treespec._unflatten(children, treespec.context)


def tree_leaves(tree, is_leaf=None):
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree, is_leaf=None):
    return tree_flatten(tree, is_leaf)[1]


tree_iter = tree_leaves


def tree_map(func, tree, *rests, is_leaf=None):
    """The same tree with func of its leaves (and of those of other trees)."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [tree_leaves(r, is_leaf) for r in rests]
    return tree_unflatten([func(*each) for each in zip(leaves, *others)], spec)


def tree_map_only(kind, func, tree, is_leaf=None):
    return tree_map(lambda x: func(x) if isinstance(x, kind) else x, tree, is_leaf=is_leaf)


def tree_map_(func, tree, *rests, is_leaf=None):
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_all(pred, tree, is_leaf=None):
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred, tree, is_leaf=None):
    return any(map(pred, tree_leaves(tree, is_leaf)))
