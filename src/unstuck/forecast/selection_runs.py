"""The recall runs that the signal `two_step_gain` was chosen on, by id; they cannot test it."""

# fmt: off
RECALL = frozenset({
    "011c4f699e9eb18f", "04f5578c4200f6dd", "071c9d4577eafc6a", "074c6af702676a39", "1d1da172ce693141",
    "25d9a3f5b9499979", "285923a3b96f4c7b", "2c492f6797c95152", "2d32bdbb89ea33ca", "4549386d1f78c80b",
    "5e945759d236659c", "5f41bba3aac97beb", "63d4d46d98996a09", "6770dbbb34aa7e5e", "680998e2719e5338",
    "6d75677299b5cf2f", "73787241530966e9", "766b61322d25f261", "82f8dca3caa0b81d", "8d2874c549e56ba7",
    "9735e52dbecc79ad", "9e1ff1a2b94125f9", "a1d7faf374d25a9a", "b2aed99d01c87094", "bca737bf1a0595f2",
    "c8f473af452c33c5", "d15034528b147b95", "d4fcc7770898c708", "d6e66b671f0ce25d", "d8c575f6cbfbb6a6",
    "e561c1a925d74ad5", "e691c83bc47496ed", "e9736a4478f164ce", "efe94f8040f2e1d0", "f54b1ea934243ca2",
})
