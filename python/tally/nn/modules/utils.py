"""torch.nn.modules.utils: a number as a tuple."""


def _ntuple(n):
    return lambda x: tuple(x) if hasattr(x, "__iter__") else (x,) * n


_single, _pair, _triple, _quadruple = (_ntuple(n) for n in (1, 2, 3, 4))
