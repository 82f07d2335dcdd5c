"""torch.utils.tensorboard: SummaryWriter writes event files that `tensorboard --logdir` shows. It needs no other
package: a file is a sequence of records (length, checksum, an Event of TensorBoard's protocol buffers, checksum)."""
import math
import os
import socket
import struct
import time
import zlib

import numpy as np

_TABLE = []
for _i in range(256):
    _c = _i
    for _ in range(8):
        _c = _c >> 1 ^ (0x82F63B78 if _c & 1 else 0)
    _TABLE.append(_c)


def _checksum(data):
    """CRC-32C, rotated and shifted as the format wants it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# ---- Protocol buffers: a key, then a value by its wire type ----

def _varint(n):
    n &= 2**64 - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def _int(field, n):
    return _varint(field << 3) + _varint(int(n))


def _double(field, x):
    return _varint(field << 3 | 1) + struct.pack("<d", x)


def _float(field, x):
    return _varint(field << 3 | 5) + struct.pack("<f", x)


def _bytes(field, data):
    data = data.encode() if isinstance(data, str) else data
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _doubles(field, numbers):
    return _bytes(field, struct.pack(f"<{len(numbers)}d", *numbers))


def _metadata(plugin):
    return _bytes(9, _bytes(1, _bytes(1, plugin)))


def _array(x):
    return x.detach().cpu().float().numpy() if hasattr(x, "detach") else np.asarray(x)


def _histogram(values, bins):
    values = _array(values).astype("float64").reshape(-1)
    if not values.size:
        raise ValueError("The input has no element.")
    counts, limits = np.histogram(values, bins="auto" if bins in ("tensorflow", "auto", "fd") else bins)
    return b"".join([_double(1, values.min()), _double(2, values.max()), _double(3, values.size),
                     _double(4, values.sum()), _double(5, float(values @ values)),
                     _doubles(6, limits[1:].tolist()), _doubles(7, counts.astype("float64").tolist())])


def _png(image):
    """(H, W, C) bytes as a PNG file."""
    h, w, n = image.shape
    kind = {1: 0, 3: 2, 4: 6}[n]

    def part(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    rows = b"".join(b"\0" + image[y].tobytes() for y in range(h))
    return (b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, kind, 0, 0, 0))
            + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b""))


class SummaryWriter:
    """Numbers, texts, histograms and pictures of a run, by step."""

    def __init__(self, log_dir=None, comment="", purge_step=None, max_queue=10, flush_secs=120, filename_suffix=""):
        if not log_dir:
            log_dir = os.path.join("runs", time.strftime("%b%d_%H-%M-%S_") + socket.gethostname() + comment)
        self.log_dir = os.fspath(log_dir)
        self._suffix, self._writers = filename_suffix, {}
        self._file = self._open(self.log_dir)

    def _open(self, folder):
        os.makedirs(folder, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}{self._suffix}"
        file = open(os.path.join(folder, name), "wb")
        self._record(file, _double(1, time.time()) + _bytes(3, "brain.Event:2"))
        return file

    @staticmethod
    def _record(file, event):
        head = struct.pack("<Q", len(event))
        file.write(head + struct.pack("<I", _checksum(head)) + event + struct.pack("<I", _checksum(event)))

    def _add(self, tag, value, step, walltime, file=None):
        event = (_double(1, time.time() if walltime is None else walltime) + _int(2, 0 if step is None else step)
                 + _bytes(5, _bytes(1, _bytes(1, tag) + value)))
        self._record(self._file if file is None else file, event)

    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None, new_style=False, double_precision=False):
        self._add(tag, _float(2, float(scalar_value)), global_step, walltime)

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None):
        """Several curves in one diagram: a folder for each."""
        for tag, x in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}")
            if folder not in self._writers:
                self._writers[folder] = self._open(folder)
            self._add(main_tag, _float(2, float(x)), global_step, walltime, self._writers[folder])

    def add_text(self, tag, text_string, global_step=None, walltime=None):
        tensor = _int(1, 7) + _bytes(2, _bytes(2, _int(1, 1))) + _bytes(8, text_string)
        self._add(f"{tag}/text_summary", _bytes(8, tensor) + _metadata("text"), global_step, walltime)

    def add_histogram(self, tag, values, global_step=None, bins="tensorflow", walltime=None, max_bins=None):
        self._add(tag, _bytes(5, _histogram(values, bins)), global_step, walltime)

    def add_image(self, tag, img_tensor, global_step=None, walltime=None, dataformats="CHW"):
        image = _array(img_tensor)
        order = {"CHW": (1, 2, 0), "HWC": (0, 1, 2), "HW": (0, 1)}.get(dataformats.upper())
        if order is None:
            raise ValueError(f"add_image: dataformats {dataformats} is not CHW, HWC or HW")
        image = image.transpose(order).reshape(*image.transpose(order).shape[:2], -1)
        image = np.clip(image * (255 if image.dtype.kind == "f" and image.max(initial=0) <= 1 else 1), 0, 255)
        image = np.ascontiguousarray(image.astype("uint8"))
        h, w, n = image.shape
        self._add(tag, _bytes(4, _int(1, h) + _int(2, w) + _int(3, n) + _bytes(4, _png(image))), global_step, walltime)

    def add_images(self, tag, img_tensor, global_step=None, walltime=None, dataformats="NCHW"):
        """A batch of pictures, in one square."""
        images = _array(img_tensor).transpose([dataformats.index(k) for k in "NHWC"])
        n, h, w, c = images.shape
        columns = math.ceil(math.sqrt(n))
        grid = np.zeros((-(-n // columns) * h, columns * w, c), images.dtype)
        for i in range(n):
            y, x = i // columns * h, i % columns * w
            grid[y:y + h, x:x + w] = images[i]
        self.add_image(tag, grid, global_step, walltime, "HWC")

    def add_hparams(self, hparam_dict, metric_dict, hparam_domain_discrete=None, run_name=None, global_step=None):
        """The settings as a text, and the metrics as numbers."""
        self.add_text("hparams", "\n".join(f"    {k}: {v}" for k, v in hparam_dict.items()), global_step)
        for k, v in metric_dict.items():
            self.add_scalar(k, v, global_step)

    def add_graph(self, model, input_to_model=None, verbose=False, use_strict_trace=True):
        """There is no graph to draw: the modules as a text."""
        self.add_text("model", "".join("    " + line + "\n" for line in repr(model).splitlines()))

    def add_figure(self, tag, figure, global_step=None, close=True, walltime=None):
        figure.canvas.draw()
        self.add_image(tag, np.asarray(figure.canvas.buffer_rgba())[..., :3], global_step, walltime, "HWC")

    def add_custom_scalars(self, layout):
        """Accepted: tensorboard arranges the diagrams by their names."""

    def get_logdir(self):
        return self.log_dir

    def flush(self):
        for file in (self._file, *self._writers.values()):
            file.flush()

    def close(self):
        for file in (self._file, *self._writers.values()):
            file.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
