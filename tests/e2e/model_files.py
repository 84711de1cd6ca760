"""Model files taken apart, changed and put together again: safetensors, and GGUF. For models that are wrong in one place."""
import json, struct

# ---- safetensors: {name: [dtype, shape, bytes]} ----

FORMATS = {"F32": "f", "F16": "e", "F64": "d", "I8": "b"}


def read_safetensors(path):
    data = path.read_bytes()
    n = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return {k: [t["dtype"], t["shape"], data[8 + n:][t["data_offsets"][0]:t["data_offsets"][1]]] for k, t in header.items()}


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def pack(dtype, values):
    if dtype == "BF16":  # cut, not rounded: the values given are representable
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    return struct.pack(f"<{len(values)}{FORMATS[dtype]}", *values)


def unpack(dtype, data):
    if dtype == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    n = len(data) // struct.calcsize(FORMATS[dtype])
    return list(struct.unpack(f"<{n}{FORMATS[dtype]}", data))


def change(tensors, name, change_value, dtype=None):
    """Each value v at flat index i becomes change_value(i, v); stored as dtype."""
    old, shape, data = tensors[name]
    new = dtype or old
    tensors[name] = [new, shape, pack(new, [change_value(i, v) for i, v in enumerate(unpack(old, data))])]


# ---- GGUF: metadata {key: (type, raw bytes)}, tensors [[name, dims, type, bytes]] ----

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
U16, U32, BOOL, STRING = 2, 4, 7, 8


def gguf_string(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


class Gguf:
    def __init__(self, path):
        data = path.read_bytes()
        magic, self.version, n_tensors, n_keys = struct.unpack_from("<4sIQQ", data)
        assert magic == b"GGUF"
        at = 24

        def string():
            nonlocal at
            n = struct.unpack_from("<Q", data, at)[0]
            at += 8 + n
            return data[at - n:at].decode()

        def skip(kind):
            nonlocal at
            if kind == STRING:
                string()
            elif kind == 9:
                item, n = struct.unpack_from("<IQ", data, at)
                at += 12
                for _ in range(n):
                    skip(item)
            else:
                at += SIZES[kind]

        self.metadata, self.tensors = {}, []
        for _ in range(n_keys):
            key, kind = string(), struct.unpack_from("<I", data, at)[0]
            at += 4
            begin = at
            skip(kind)
            self.metadata[key] = (kind, data[begin:at])
        offsets = []
        for _ in range(n_tensors):
            name, n_dims = string(), struct.unpack_from("<I", data, at)[0]
            *dims, kind, offset = struct.unpack_from(f"<{n_dims}QIQ", data, at + 4)
            at += 4 + 8 * n_dims + 12
            self.tensors.append([name, dims, kind, b""])
            offsets.append(offset)
        start = (at + 31) // 32 * 32
        for tensor, offset in zip(self.tensors, offsets):
            end = min((o for o in offsets if o > offset), default=len(data) - start)
            tensor[3] = data[start + offset:start + end]  # with the padding behind it

    def write(self, path):
        out = struct.pack("<4sIQQ", b"GGUF", self.version, len(self.tensors), len(self.metadata))
        for key, (kind, raw) in self.metadata.items():
            out += gguf_string(key) + struct.pack("<I", kind) + raw
        offset, blocks = 0, []
        for name, dims, kind, data in self.tensors:
            out += gguf_string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
            blocks.append(data + bytes(-len(data) % 32))
            offset += len(blocks[-1])
        with open(path, "wb") as file:
            file.write(out + bytes(-len(out) % 32))
            file.writelines(blocks)

    def tensor(self, name): return next(t for t in self.tensors if t[0] == name)


def split_gguf(whole, path_of, n):
    """Writes n parts, path_of(i) for i = 1..n, as the splitting tools do: all metadata in the first."""
    n_all, at = len(whole.tensors), 0
    for i in range(n):
        part = Gguf.__new__(Gguf)
        part.version, part.metadata = whole.version, dict(whole.metadata) if i == 0 else {}
        part.metadata.update({"split.no": (U16, struct.pack("<H", i)), "split.count": (U16, struct.pack("<H", n)),
                              "split.tensors.count": (5, struct.pack("<i", n_all))})
        end = n_all * (i + 1) // n
        part.tensors, at = whole.tensors[at:end], end
        part.write(path_of(i + 1))
