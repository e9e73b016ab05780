"""What can happen to the files of a columnar table: each kind of damage by its name, and random ones.

A Victim has the bytes of the main fork and of the catalog (the TOAST relation) of the table that
test_damage.py makes: four stored row groups, then inline ones, and row vectors.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass

PAGE = 8192
HEADER = 24
VECTORS = 1 << 31

# ---- files --------------------------------------------------------------------------------------

RECORD = {
    "group_id": (0, "<Q"),
    "first_row": (8, "<Q"),
    "row_span": (16, "<Q"),
    "length": (24, "<Q"),
    "footer_offset": (32, "<Q"),
    "nrows": (52, "<I"),
    "footer_crc": (56, "<I"),
    "first_block": (60, "<I"),
    "nblocks": (64, "<I"),
    "version": (68, "<H"),
    "state": (70, "<B"),
    "nruns": (71, "<B"),
    "flags": (72, "<H"),
    "natts": (74, "<H"),
}
VECTOR = {
    "successor": (0, "<Q"),
    "bits": (8, "<Q"),
    "unit": (136, "<I"),
    "holder": (140, "<I"),
    "version": (144, "<H"),
    "action": (146, "<B"),
    "mode": (147, "<B"),
}


@dataclass
class CatalogTuple:
    """A tuple of the catalog: where its key and its bytes lie in the file."""

    key: int
    bytes: int
    length: int
    id: int
    sequence: int

    @property
    def kind(self) -> str:
        if self.id >= VECTORS:
            return "vector"
        return "part" if self.sequence & 0xFFFF else "record"


def catalog_tuples(file: bytearray) -> list[CatalogTuple]:
    found = []
    for page in range(0, len(file), PAGE):
        (lower,) = struct.unpack_from("<H", file, page + 12)
        for at in range(page + HEADER, page + lower, 4):
            (item,) = struct.unpack_from("<I", file, at)
            if item >> 15 & 3 != 1:  # not normal
                continue
            start = page + (item & 0x7FFF)
            key = start + file[start + 22]
            identity, sequence, varlena = struct.unpack_from("<IiI", file, key)
            found.append(CatalogTuple(key, key + 12, (varlena >> 2) - 4, identity, sequence))
    return found


@dataclass
class Victim:
    """The files of a table, to be damaged; row groups in the order of their rows."""

    main: bytearray
    catalog: bytearray
    groups: list[dict]

    def group(self, state: str, number: int = 0) -> dict:
        return [group for group in self.groups if group["state"] == state][number]

    def page(self, number: int) -> int:
        """Where a page of the second stored group begins; a negative number counts from its end."""
        group = self.group("stored", 1)
        return PAGE * (group["first_block"] + number % group["pages"])

    def flip(self, at: int, bits: int = 0x10) -> None:
        self.main[at] ^= bits

    def overwrite(self, at: int, new: bytes) -> None:
        self.main[at : at + len(new)] = new

    def swap(self, one: int, other: int) -> None:
        for at in range(PAGE):
            self.main[one + at], self.main[other + at] = self.main[other + at], self.main[one + at]

    def tuples(self, kind: str) -> list[CatalogTuple]:
        return [found for found in catalog_tuples(self.catalog) if found.kind == kind]

    def record(self, group: dict) -> CatalogTuple:
        (found,) = [
            record
            for record in self.tuples("record")
            if struct.unpack_from("<Q", self.catalog, record.bytes)[0] == group["group_id"]
        ]
        return found

    def parts(self, group: dict) -> list[CatalogTuple]:
        return [
            part
            for part in self.tuples("part")
            if struct.unpack_from("<Q", self.catalog, part.bytes)[0] == group["group_id"]
        ]

    def change(
        self, found: CatalogTuple, place: tuple[int, str], change: Callable[[int], int]
    ) -> None:
        """Replace a field of a tuple by what the function makes of it."""
        offset, form = place
        (value,) = struct.unpack_from(form, self.catalog, found.bytes + offset)
        struct.pack_into(form, self.catalog, found.bytes + offset, change(value))


@dataclass
class Damage:
    """What to do to the files, and what columnar_verify() has to say."""

    do: Callable[[Victim], object]
    # positions of stored groups that must be blamed, and nobody else
    stored: tuple[int, ...] = ()
    inline: tuple[int, ...] = ()
    # is there a problem outside of row groups?
    table: bool = False
    # nobody needs to notice
    harmless: bool = False


def stored(do: Callable[[Victim], None], *numbers: int) -> Damage:
    return Damage(do, stored=numbers or (1,))


def change_record(field_name: str, change: Callable[[int], int]) -> Damage:
    return Damage(
        lambda v: v.change(v.record(v.group("stored", 1)), RECORD[field_name], change), table=True
    )


def change_vector(field_name: str, change: Callable[[int], int]) -> Damage:
    return Damage(lambda v: v.change(v.tuples("vector")[0], VECTOR[field_name], change), table=True)


def change_key(
    find: Callable[[Victim], CatalogTuple], offset: int, change: Callable[[int], int]
) -> Damage:
    return Damage(lambda v: v.change(find(v), (offset - 12, "<I"), change), table=True)


def change_part(number: int, offset: int) -> Damage:
    return Damage(
        lambda v: v.change(
            v.parts(v.group("inline"))[number], (offset, "<B"), lambda value: value ^ 0x20
        ),
        inline=(0,),
    )


def garbage(length: int) -> bytes:
    return random.Random("garbage").randbytes(length)


def first_record(v: Victim) -> CatalogTuple:
    return v.record(v.group("stored", 1))


def first_vector(v: Victim) -> CatalogTuple:
    return v.tuples("vector")[0]


ALL_STORED = (0, 1, 2, 3)

DAMAGES = {
    # the metapage
    "metapage_zeroed": Damage(lambda v: v.overwrite(0, bytes(PAGE)), table=True),
    "metapage_garbage": Damage(lambda v: v.overwrite(0, garbage(PAGE)), table=True),
    "metapage_magic": Damage(lambda v: v.flip(24), table=True),
    "metapage_version": Damage(lambda v: v.flip(28), table=True),
    "metapage_next_row_lower": Damage(lambda v: v.overwrite(32, bytes([1, 0, 0, 0])), table=True),
    "metapage_next_row_higher": Damage(lambda v: v.flip(34), table=True),
    "metapage_next_group": Damage(lambda v: v.overwrite(40, bytes(8)), table=True),
    "metapage_free_extents": Damage(lambda v: v.flip(56, 0x03), table=True),
    "metapage_extent": Damage(lambda v: v.flip(64, 0x01), table=True),
    "metapage_pd_lower": Damage(lambda v: v.flip(12, 0x08), table=True),
    "metapage_and_first_page_swapped": Damage(
        lambda v: v.swap(0, v.page(0)), table=True, stored=(1,)
    ),
    # pages of an extent
    "first_page_byte": stored(lambda v: v.flip(v.page(0) + HEADER)),
    "first_page_zeroed": stored(lambda v: v.overwrite(v.page(0), bytes(PAGE))),
    "first_page_garbage": stored(lambda v: v.overwrite(v.page(0), garbage(PAGE))),
    "first_page_garbage_behind_its_header": stored(
        lambda v: v.overwrite(v.page(0) + HEADER, garbage(PAGE - HEADER))
    ),
    "middle_page_byte": stored(lambda v: v.flip(v.page(3) + 4000)),
    "middle_page_zeroed": stored(lambda v: v.overwrite(v.page(3), bytes(PAGE))),
    "middle_page_half_zeroed": stored(
        lambda v: v.overwrite(v.page(3) + PAGE // 2, bytes(PAGE // 2))
    ),
    "middle_page_lost_sector": stored(lambda v: v.overwrite(v.page(2) + 512, garbage(512))),
    "pd_lower_too_small": stored(lambda v: v.overwrite(v.page(1) + 12, struct.pack("<H", HEADER))),
    "pd_lower_below_header": stored(lambda v: v.overwrite(v.page(1) + 12, struct.pack("<H", 3))),
    "pd_lower_beyond_page": stored(
        lambda v: v.overwrite(v.page(1) + 12, struct.pack("<H", 0xFFFF))
    ),
    "pd_upper": stored(lambda v: v.overwrite(v.page(1) + 14, struct.pack("<H", 8000))),
    "pd_upper_zero": stored(lambda v: v.overwrite(v.page(1) + 14, struct.pack("<H", 0))),
    "pd_special": stored(lambda v: v.overwrite(v.page(1) + 16, struct.pack("<H", 8))),
    "page_layout": stored(lambda v: v.flip(v.page(1) + 18, 0x07)),
    "page_lsn": Damage(lambda v: v.flip(v.page(1)), harmless=True),
    "footer_byte": stored(lambda v: v.flip(footer(v))),
    "footer_page_zeroed": stored(lambda v: v.overwrite(v.page(-1), bytes(PAGE))),
    "pages_of_a_group_swapped": stored(lambda v: v.swap(v.page(1), v.page(2))),
    "first_pages_of_two_groups_swapped": stored(
        lambda v: v.swap(v.page(0), v.group("stored")["first_block"] * PAGE), 0, 1
    ),
    "middle_pages_of_two_groups_swapped": stored(
        lambda v: v.swap(v.page(3), (v.group("stored")["first_block"] + 3) * PAGE), 0, 1
    ),
    "two_groups_swapped": stored(lambda v: swap_groups(v), 0, 1),
    "two_groups_hit": stored(
        lambda v: (v.flip(v.page(1) + 99), v.flip(end_of_group(v, 3) - 2 * PAGE + 99)), 1, 3
    ),
    # the file's length
    "truncated_within_a_page": stored(lambda v: cut(v, end_of_group(v, 3) - PAGE - 100), 3),
    "truncated_within_an_extent": stored(lambda v: cut(v, end_of_group(v, 3) - 2 * PAGE), 3),
    "truncated_behind_the_metapage": stored(lambda v: cut(v, PAGE), *ALL_STORED),
    "truncated_to_nothing": Damage(lambda v: cut(v, 0), table=True),
    "truncated_to_half_a_metapage": Damage(lambda v: cut(v, PAGE // 2), table=True),
    "extended_by_garbage": Damage(lambda v: v.main.extend(garbage(3 * PAGE)), harmless=True),
    # records of the catalog
    "record_length": change_record("length", lambda n: n - 1),
    "record_length_huge": change_record("length", lambda n: n | 1 << 60),
    "record_nrows_lower": change_record("nrows", lambda n: n - 1),
    "record_nrows_zero": change_record("nrows", lambda n: 0),
    "record_first_row": change_record("first_row", lambda n: n + 1),
    "record_row_span": change_record("row_span", lambda n: n + 1),
    "record_first_block": change_record("first_block", lambda n: n + 1),
    "record_first_block_far": change_record("first_block", lambda n: n | 1 << 30),
    "record_nblocks": change_record("nblocks", lambda n: n + 100),
    "record_footer_offset": change_record("footer_offset", lambda n: n + 8),
    "record_footer_crc": change_record("footer_crc", lambda n: n ^ 1),
    "record_natts": change_record("natts", lambda n: n - 1),
    "record_version": change_record("version", lambda n: n + 1),
    "record_state_open": change_record("state", lambda n: 0),
    "record_state_inline": change_record("state", lambda n: 2),
    "record_state_unknown": change_record("state", lambda n: 77),
    "record_flags": change_record("flags", lambda n: n ^ 0x1),
    "record_becomes_a_part": change_key(first_record, 4, lambda n: n ^ 1),
    "record_becomes_a_vector": change_key(first_record, 0, lambda n: n | VECTORS),
    "record_moves": change_key(first_record, 0, lambda n: n + 1),
    "record_varlena": change_key(first_record, 8, lambda n: n - 4),
    "record_varlena_compressed": change_key(first_record, 8, lambda n: n | 2),
    # inline groups
    "part_first_byte": change_part(0, 8),
    "part_middle_byte": change_part(1, 1000),
    "part_last_byte": Damage(lambda v: flip_last_byte(v), inline=(0,)),
    "part_group": Damage(lambda v: change_group_of_part(v), table=True, inline=(0,)),
    "part_number": Damage(lambda v: change_number_of_part(v), table=True, inline=(0,)),
    # row vectors
    "vector_bits_fewer": change_vector("bits", lambda n: n & (n - 1) if n else 1),
    "vector_bits_more": change_vector("bits", lambda n: n | 0xFF),
    "vector_unit": change_vector("unit", lambda n: n + 1),
    "vector_action_lock": change_vector("action", lambda n: 5),
    "vector_action_unknown": change_vector("action", lambda n: 9),
    "vector_version": change_vector("version", lambda n: n + 1),
    "vector_successor": change_vector("successor", lambda n: n + 1),
    "vector_moves": change_key(first_vector, 0, lambda n: n + 1),
    "vector_becomes_a_part": change_key(first_vector, 0, lambda n: n ^ VECTORS),
}


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def forge(
    find: Callable[[Victim], CatalogTuple], place: tuple[int, str], change: Callable[[int], int]
):
    """A lie that the tuple's checksum does not give away."""

    def do(v: Victim) -> None:
        found = find(v)
        last = found.bytes + found.length - 4

        def checksum() -> bytes:
            return struct.pack(
                "<I", crc32c(v.catalog[found.key : found.key + 8] + v.catalog[found.bytes : last])
            )

        assert v.catalog[last : last + 4] == checksum()
        v.change(found, place, change)
        v.catalog[last : last + 4] = checksum()

    return do


def inline_record(v: Victim) -> CatalogTuple:
    return v.record(v.group("inline"))


FORGERIES = {
    "forged_length": forge(first_record, RECORD["length"], lambda n: n - 1),
    "forged_length_of_inline": forge(inline_record, RECORD["length"], lambda n: n + 3000),
    "forged_length_of_inline_huge": forge(inline_record, RECORD["length"], lambda n: 1 << 62),
    "forged_nrows": forge(first_record, RECORD["nrows"], lambda n: n - 1),
    "forged_row_span": forge(first_record, RECORD["row_span"], lambda n: n + 1000),
    "forged_footer_offset": forge(first_record, RECORD["footer_offset"], lambda n: 0),
    "forged_footer_crc": forge(first_record, RECORD["footer_crc"], lambda n: n + 1),
    "forged_first_block": forge(first_record, RECORD["first_block"], lambda n: n - 1),
    "forged_first_block_far": forge(first_record, RECORD["first_block"], lambda n: 0xFFFFFFF0),
    "forged_nblocks": forge(first_record, RECORD["nblocks"], lambda n: 0xFFFFFFFF),
    "forged_state_inline": forge(first_record, RECORD["state"], lambda n: 2),
    "forged_state_stored": forge(inline_record, RECORD["state"], lambda n: 1),
    "forged_flags": forge(first_record, RECORD["flags"], lambda n: n ^ 3),
    "forged_natts": forge(first_record, RECORD["natts"], lambda n: 1600),
    "forged_version": forge(first_record, RECORD["version"], lambda n: 2),
    "forged_nruns": forge(first_record, RECORD["nruns"], lambda n: 7),
    "forged_vector_action": forge(first_vector, VECTOR["action"], lambda n: 6),
    "forged_vector_update": forge(first_vector, VECTOR["action"], lambda n: 2),
    "forged_vector_mode": forge(first_vector, VECTOR["mode"], lambda n: 200),
    "forged_vector_holder": forge(first_vector, VECTOR["holder"], lambda n: 3),
    "forged_vector_lock": forge(first_vector, VECTOR["action"], lambda n: 5),
    "forged_vector_successor": forge(first_vector, VECTOR["successor"], lambda n: 1 << 60),
}


def end_of_group(v: Victim, number: int) -> int:
    group = v.group("stored", number)
    return PAGE * (group["first_block"] + group["pages"])


def footer(v: Victim) -> int:
    """The last byte of the second stored group."""
    length = v.group("stored", 1)["bytes"]
    return v.page(-1) + HEADER + (length - 1) % (PAGE - HEADER)


def cut(v: Victim, length: int) -> None:
    del v.main[length:]


def swap_groups(v: Victim) -> None:
    first, second = v.group("stored", 0), v.group("stored", 1)
    for number in range(min(first["pages"], second["pages"])):
        v.swap((first["first_block"] + number) * PAGE, (second["first_block"] + number) * PAGE)


def flip_last_byte(v: Victim) -> None:
    part = v.parts(v.group("inline"))[-1]
    v.catalog[part.bytes + part.length - 5] ^= 1  # in front of the checksum


def change_group_of_part(v: Victim) -> None:
    v.change(v.parts(v.group("inline"))[1], (0, "<Q"), lambda n: n + 1)


def change_number_of_part(v: Victim) -> None:
    v.change(v.parts(v.group("inline"))[1], (4 - 12, "<I"), lambda n: n + 1)


# ---- lost pages of the catalog ------------------------------------------------------------------

EMPTY_PAGE = struct.pack("<QHHHHHHI", 0, 0, 0, HEADER, PAGE, PAGE, PAGE | 4, 0).ljust(PAGE, b"\0")
ITEM = 4  # bytes of a line pointer


def catalog_page(v: Victim, kind: str) -> int:
    """Where a page begins that has tuples of this kind that count."""
    if kind == "record":
        found = v.record(v.group("inline", -1))
    elif kind == "part":
        inline = [group for group in v.groups if group["state"] == "inline"]
        found = v.parts(max(inline, key=lambda group: group["bytes"]))[-1]
    else:
        vectors = v.tuples(kind)
        found = vectors[len(vectors) // 2]
    return found.key // PAGE * PAGE


def set_page(v: Victim, page: int, content: bytes) -> None:
    v.catalog[page : page + PAGE] = content


def age_page(v: Victim, page: int) -> None:
    """The page as it was before its last tuples were inserted."""
    (lower,) = struct.unpack_from("<H", v.catalog, page + 12)
    struct.pack_into("<H", v.catalog, page + 12, lower - 3 * ITEM)


def swap_pages(v: Victim, one: int, other: int) -> None:
    content = v.catalog[one : one + PAGE]
    set_page(v, one, v.catalog[other : other + PAGE])
    set_page(v, other, content)


def cut_catalog(v: Victim, length: int) -> None:
    del v.catalog[length:]


LOSSES = {
    "zeroed": lambda v, page: set_page(v, page, bytes(PAGE)),
    "empty": lambda v, page: set_page(v, page, EMPTY_PAGE),
    "older": age_page,
    "cut_off": cut_catalog,
}


def lose(kind: str, loss: Callable[[Victim, int], None]) -> Callable[[Victim], None]:
    return lambda v: loss(v, catalog_page(v, kind))


LOST_PAGES = {
    **{
        f"{kind}_page_{name}": lose(kind, loss)
        for kind in ("record", "part", "vector")
        for name, loss in LOSSES.items()
    },
    "pages_swapped": lambda v: swap_pages(v, catalog_page(v, "record"), catalog_page(v, "vector")),
    "all_cut_off": lambda v: cut_catalog(v, 0),
}


# ---- any damage ---------------------------------------------------------------------------------


def hit_pages(rng: random.Random, v: Victim) -> None:
    """Bits, sectors, runs of zeroes or garbage, anywhere in the main fork."""
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(v.main))
        if rng.random() < 0.2:  # the header of a page
            at = at // PAGE * PAGE + rng.randrange(HEADER)
        length = min(rng.choice((1, 1, 1, 2, 8, 100, 512, 4096, PAGE)), len(v.main) - at)
        way = rng.random()
        if way < 0.6:
            v.flip(at, 1 << rng.randrange(8))
        elif way < 0.8:
            v.overwrite(at, bytes(length))
        else:
            v.overwrite(at, rng.randbytes(length))


def hit_catalog(rng: random.Random, v: Victim) -> None:
    """Bits and bytes of what is ours in a tuple: its key, its bytes, its checksum."""
    found = rng.choice(catalog_tuples(v.catalog))
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = found.key + rng.randrange(12 + found.length)
        v.catalog[at] = rng.choice(
            (v.catalog[at] ^ 1 << rng.randrange(8), rng.randrange(256), 0, 255)
        )


def hit_order(rng: random.Random, v: Victim) -> None:
    one, other = (rng.randrange(len(v.main) // PAGE) * PAGE for _ in range(2))
    v.swap(one, other)


def hit_length(rng: random.Random, v: Victim) -> None:
    cut(
        v,
        rng.choice(
            (0, PAGE, rng.randrange(len(v.main)), rng.randrange(len(v.main)) // PAGE * PAGE)
        ),
    )


def random_damage(seed: str) -> Callable[[Victim], None]:
    rng = random.Random(seed)
    hit = rng.choice(
        (hit_pages, hit_pages, hit_pages, hit_catalog, hit_catalog, hit_order, hit_length)
    )
    return lambda v: hit(rng, v)
