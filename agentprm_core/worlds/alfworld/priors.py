"""Where things lie in ALFWorld's homes: how often an object of one type is in a receptacle of another type.

The household generator draws its homes from this table, and the expert searches the likely places first. It holds
counts of the 3,554 published training games and nothing of any single game;
``python -m benchmarks.households --games DIR --table`` measures it anew.
"""

from __future__ import annotations

_PER_MILLE = {
    "AlarmClock": "DiningTable 563 Desk 417 CounterTop 341 Dresser 324 SideTable 233 Shelf 69",
    "Apple": "Fridge 243 DiningTable 200 SideTable 171 Microwave 128 GarbageCan 123 CounterTop 107 SinkBasin 91",
    "Book": (
        "Bed 435 CoffeeTable 317 CounterTop 259 Desk 246 DiningTable 192 Sofa 165 Dresser 143 ArmChair 72 "
        "SideTable 45 Cabinet 20 Drawer 16 Shelf 8"
    ),
    "Bowl": (
        "Desk 616 CoffeeTable 272 Dresser 264 DiningTable 213 Fridge 204 CounterTop 90 Shelf 50 "
        "SideTable 46 SinkBasin 31 Microwave 27 Cabinet 26"
    ),
    "Box": (
        "Desk 533 DiningTable 451 CoffeeTable 220 Sofa 198 Dresser 84 TVStand 76 SideTable 45 Cabinet 40 "
        "Shelf 39 ArmChair 23"
    ),
    "Bread": "DiningTable 410 CounterTop 238 Fridge 122 SideTable 61 GarbageCan 5",
    "ButterKnife": "DiningTable 338 CounterTop 247 SideTable 160 SinkBasin 55 Drawer 14",
    "CD": (
        "DiningTable 500 Dresser 263 Desk 262 SideTable 154 GarbageCan 81 ArmChair 71 Cabinet 55 Drawer 47 Shelf 25"
    ),
    "Candle": (
        "SideTable 327 Toilet 303 CounterTop 298 Cart 210 TVStand 184 CoffeeTable 170 Dresser 152 "
        "DiningTable 149 Shelf 137 Cabinet 69 Drawer 47"
    ),
    "CellPhone": (
        "Bed 252 DiningTable 236 Desk 229 Dresser 201 CoffeeTable 201 CounterTop 152 Sofa 135 "
        "SideTable 102 ArmChair 91 Safe 70 Drawer 27 Shelf 26 Cabinet 2"
    ),
    "Cloth": (
        "BathtubBasin 420 Cart 167 CounterTop 162 Dresser 148 Cabinet 105 Shelf 82 SinkBasin 55 Drawer 54 Toilet 32"
    ),
    "CreditCard": (
        "Desk 230 Dresser 207 DiningTable 183 TVStand 162 Sofa 161 CounterTop 157 CoffeeTable 146 "
        "SideTable 118 ArmChair 99 Shelf 49 Drawer 45"
    ),
    "Cup": "Fridge 210 DiningTable 188 SideTable 170 SinkBasin 93 CounterTop 92 Microwave 72 Shelf 34 Cabinet 17",
    "DeskLamp": "SideTable 388 Desk 376 Dresser 333 CoffeeTable 164 Shelf 35",
    "DishSponge": (
        "BathtubBasin 214 DiningTable 168 CounterTop 116 Toilet 77 SinkBasin 75 SideTable 67 "
        "GarbageCan 54 Shelf 51 Drawer 36 Cabinet 18"
    ),
    "Egg": "Fridge 253 DiningTable 155 SideTable 141 SinkBasin 129 GarbageCan 126 Microwave 119 CounterTop 104",
    "Fork": "DiningTable 310 CounterTop 192 SideTable 150 SinkBasin 87 Drawer 38",
    "Glassbottle": "DiningTable 217 CounterTop 101 SinkBasin 94 Fridge 89 GarbageCan 72 Shelf 44 Cabinet 20",
    "HandTowel": "HandTowelHolder 592 CounterTop 38",
    "HousePlant": (
        "DiningTable 335 CounterTop 297 Desk 270 CoffeeTable 256 Dresser 247 SideTable 238 TVStand 170 "
        "Shelf 48 Cabinet 3"
    ),
    "Kettle": "DiningTable 147 StoveBurner 100 CounterTop 96 Cabinet 18 SinkBasin 16",
    "KeyChain": (
        "Desk 232 Dresser 225 CoffeeTable 201 DiningTable 192 TVStand 175 Safe 153 SideTable 140 "
        "Ottoman 113 Sofa 100 ArmChair 79 Drawer 44 Shelf 43 Cabinet 10"
    ),
    "Knife": "DiningTable 327 CounterTop 210 SideTable 80 SinkBasin 47 Drawer 36",
    "Ladle": "DiningTable 308 CounterTop 173 Drawer 23 SinkBasin 20 Cabinet 18",
    "Laptop": (
        "Bed 631 DiningTable 297 CounterTop 262 CoffeeTable 241 Desk 231 Sofa 230 TVStand 123 Dresser 115 "
        "Ottoman 103 ArmChair 35 SideTable 24"
    ),
    "Lettuce": "DiningTable 364 Fridge 229 CounterTop 176 SideTable 141 SinkBasin 50 GarbageCan 10",
    "Mug": (
        "Desk 470 Dresser 237 DiningTable 184 SideTable 164 Fridge 163 CounterTop 144 Microwave 87 "
        "SinkBasin 70 Shelf 43 Cabinet 14 CoffeeMachine 9"
    ),
    "Newspaper": (
        "DiningTable 285 Dresser 251 CoffeeTable 174 Sofa 156 Ottoman 132 TVStand 87 SideTable 75 "
        "ArmChair 60 Shelf 57 Drawer 5"
    ),
    "Pan": "CounterTop 139 StoveBurner 119 DiningTable 77 Fridge 51 Cabinet 7",
    "PaperTowelRoll": "DiningTable 413 Toilet 313 Cart 263 SideTable 228 CounterTop 218 GarbageCan 148 Shelf 108",
    "Pen": (
        "DiningTable 453 Desk 362 CoffeeTable 327 Dresser 290 CounterTop 176 SideTable 152 TVStand 119 "
        "Shelf 51 Drawer 32 GarbageCan 23"
    ),
    "Pencil": (
        "DiningTable 354 Desk 300 CoffeeTable 274 Dresser 223 SideTable 199 CounterTop 161 TVStand 103 "
        "Shelf 58 GarbageCan 56 Drawer 35"
    ),
    "PepperShaker": "DiningTable 219 SideTable 211 CounterTop 133 Shelf 52 Drawer 25 Cabinet 24",
    "Pillow": "Bed 834 Sofa 664 ArmChair 93",
    "Plate": "DiningTable 258 CoffeeTable 176 CounterTop 130 Fridge 90 SideTable 51 Shelf 34 Cabinet 29 SinkBasin 23",
    "Pot": "StoveBurner 171 CounterTop 66 DiningTable 66 Fridge 49 SinkBasin 5 Cabinet 3",
    "Potato": "Fridge 263 DiningTable 210 CounterTop 125 SideTable 117 SinkBasin 110 Microwave 102 GarbageCan 63",
    "RemoteControl": (
        "Desk 373 CounterTop 333 CoffeeTable 235 Dresser 199 TVStand 189 DiningTable 187 Sofa 155 "
        "Ottoman 107 SideTable 84 ArmChair 60 Drawer 21 Shelf 14"
    ),
    "SaltShaker": "DiningTable 233 SideTable 221 CounterTop 138 Shelf 46 Drawer 24 Cabinet 23",
    "SoapBar": (
        "SideTable 357 CounterTop 190 Cart 189 BathtubBasin 183 Toilet 156 SinkBasin 100 Shelf 83 "
        "GarbageCan 68 Cabinet 62 Drawer 42"
    ),
    "SoapBottle": (
        "Dresser 308 DiningTable 269 Toilet 239 CounterTop 162 SideTable 150 GarbageCan 100 Shelf 86 "
        "Cabinet 26 Drawer 4"
    ),
    "Spatula": "DiningTable 317 CounterTop 194 SinkBasin 86 SideTable 58 Drawer 36",
    "Spoon": "DiningTable 283 CounterTop 165 SideTable 161 SinkBasin 109 Drawer 46",
    "SprayBottle": (
        "SideTable 479 Cart 402 Toilet 268 CounterTop 253 Dresser 215 DiningTable 197 Shelf 127 "
        "GarbageCan 104 Cabinet 42"
    ),
    "Statue": (
        "Desk 418 DiningTable 282 Dresser 261 CoffeeTable 237 TVStand 208 CounterTop 196 SideTable 127 Shelf 80"
    ),
    "TeddyBear": "Bed 783",
    "Television": "Dresser 888 TVStand 830 CoffeeTable 88 SideTable 17",
    "TissueBox": (
        "Desk 454 CounterTop 389 CoffeeTable 379 DiningTable 304 Cart 197 TVStand 176 Shelf 128 "
        "SideTable 105 Dresser 80 Cabinet 58 Drawer 31 Toilet 26 GarbageCan 6"
    ),
    "ToiletPaper": (
        "SideTable 250 Toilet 231 CounterTop 220 Cart 208 Dresser 198 ToiletPaperHanger 117 Shelf 111 "
        "GarbageCan 94 Cabinet 56 Drawer 41"
    ),
    "Tomato": "Fridge 332 DiningTable 259 SideTable 148 CounterTop 130 GarbageCan 91 SinkBasin 67",
    "Towel": "TowelHolder 700 CounterTop 26",
    "Vase": (
        "Dresser 444 DiningTable 188 Desk 183 CoffeeTable 178 CounterTop 126 TVStand 121 SideTable 99 "
        "Shelf 81 Cabinet 22"
    ),
    "Watch": "TVStand 280 Desk 274 DiningTable 254 Dresser 232 CoffeeTable 219 SideTable 115 Drawer 47 Shelf 25",
    "WateringCan": "CoffeeTable 529 Shelf 155 SideTable 88",
    "WineBottle": "DiningTable 311 CounterTop 188 GarbageCan 89 Shelf 28 Cabinet 18 Fridge 14",
}


def _rates(row: str) -> dict[str, float]:
    words = row.split()
    return {kind: int(rate) / 1000 for kind, rate in zip(words[::2], words[1::2])}


WHERE: dict[str, dict[str, float]] = {thing: _rates(row) for thing, row in _PER_MILLE.items()}
"""Object type → receptacle type → probability that one such object is in one given receptacle of that type, in homes
that have both; highest first. Types rarer than 0.5 % of the object's places are left out."""

OPENABLE = frozenset({"Cabinet", "Drawer", "Fridge", "Microwave", "Safe"})
"""Receptacle types that start closed."""
