"""torch.fft against PyTorch. Its own samples are in test_opinfo.py; here are lengths, accuracy, prices and errors."""
import numpy as np
import pytest
import torch

import tally

R = np.random.default_rng(0)
LENGTHS = [1, 2, 3, 4, 5, 8, 12, 16, 30, 31, 37, 49, 64, 97, 100, 101, 240, 251, 256, 1009, 1024, 2 * 1009, 4096]


@pytest.mark.parametrize("n", LENGTHS)
def test_any_length(n):
    """Within some roundings of torch's float64 result, in both dtypes."""
    x = R.standard_normal((3, n)) + 1j * R.standard_normal((3, n))
    for name, given in (("fft", x), ("ifft", x), ("rfft", x.real), ("irfft", x[:, :n // 2 + 1])):
        lengths = {"n": n} if name == "irfft" else {}
        ours = getattr(tally.fft, name)(tally.tensor(given), **lengths)
        theirs = getattr(torch.fft, name)(torch.tensor(given), **lengths).numpy()
        largest = np.abs(theirs).max() * max(1, np.log2(n))
        assert ours.dtype.name == theirs.dtype.name
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=4e-15 * largest, err_msg=name)
        narrow = getattr(tally.fft, name)(tally.tensor(given).to(tally.complex64 if given.dtype.kind == "c"
                                                                 else tally.float32), **lengths)
        np.testing.assert_allclose(narrow.numpy(), theirs, rtol=0, atol=2e-7 * largest)


@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("name", "fft ifft rfft irfft hfft ihfft".split())
def test_norms_sizes_axes_and_gradients(name, norm):
    real = name in ("rfft", "ihfft")
    x = R.standard_normal((4, 5)) + (0 if real else 1j * R.standard_normal((4, 5)))
    for n, dim in ((None, -1), (3, 0), (7, 1), (8, -2)):
        found = []
        for m in (tally, torch):
            leaf = m.tensor(x, requires_grad=True)
            y = getattr(m.fft, name)(leaf, n, dim, norm)
            z = m.view_as_real(y.resolve_conj()) if y.is_complex() else y
            weights = m.tensor(np.arange(z.numel(), dtype="float64") % 7).reshape(z.shape)
            (z * weights).sum().backward()
            found.append((y.detach(), leaf.grad))
        (p, g), (q, h) = found
        np.testing.assert_allclose(p.numpy(), q.resolve_conj().numpy(), atol=1e-12)
        np.testing.assert_allclose(g.numpy(), h.resolve_conj().numpy(), atol=1e-12, err_msg=f"{n} {dim}")


def test_frequencies_and_shifts():
    for n in (1, 4, 5):
        for name in ("fftfreq", "rfftfreq"):
            ours, theirs = getattr(tally.fft, name)(n, 0.5), getattr(torch.fft, name)(n, 0.5)
            np.testing.assert_allclose(ours.numpy(), theirs.numpy())
    x = R.standard_normal((4, 5))
    for name in ("fftshift", "ifftshift"):
        for dim in (None, 0, (0, 1)):
            assert np.array_equal(getattr(tally.fft, name)(tally.tensor(x), dim).numpy(),
                                  getattr(torch.fft, name)(torch.tensor(x), dim).numpy())


def test_a_spectral_layer_trains_as_with_torch():
    """A convolution by multiplying spectra with complex weights, as layers of Fourier operators have."""
    first = (R.standard_normal((3, 17)) + 1j * R.standard_normal((3, 17))).astype("complex64")
    x, y = (R.standard_normal((2, 3, 32)).astype("float32") for _ in range(2))
    losses = []
    for m in (tally, torch):
        weight, losses_here = m.tensor(first, requires_grad=True), []
        for _ in range(4):
            out = m.fft.irfft(m.fft.rfft(m.tensor(x), norm="ortho") * weight, n=32, norm="ortho")
            loss = (out - m.tensor(y)).square().mean()
            loss.backward()
            with m.no_grad():
                weight -= 0.5 * weight.grad
            weight.grad = None
            losses_here.append(loss.item())
        losses.append(losses_here)
    np.testing.assert_allclose(*losses, rtol=1e-5)
    assert losses[0][-1] < losses[0][0]


def test_the_price_is_the_receipt():
    bills = []
    for device in ("meta", "cpu"):
        x = tally.ones(4, 37, device=device, requires_grad=True)
        with tally.ledger() as bill:
            tally.fft.rfft2(x).abs().sum().backward()
        bills.append((bill.calls, bill.flops, bill.bytes))
    assert bills[0] == bills[1]
    with tally.ledger() as bill:
        tally.fft.fft(tally.ones(2, 8, dtype=tally.complex64))
    assert bill.flops == 2 * 5 * 8 * 3


@pytest.mark.parametrize("call, words", [
    (lambda x: tally.fft.fft(x, 0), "Invalid number of data points"),
    (lambda x: tally.fft.fft(x, norm="x"), "Invalid normalization mode"),
    (lambda x: tally.fft.rfft(x * 1j), "expects a real input tensor"),
    (lambda x: tally.fft.fft(x.half()), "Unsupported dtype Half"),
    (lambda x: tally.fft.fftn(x, dim=(0, 0)), "must be unique"),
    (lambda x: tally.fft.fft(x[:0]), "Invalid number of data points"),
])
def test_refusals(call, words):
    with pytest.raises(RuntimeError, match=words):
        call(tally.ones(4))
