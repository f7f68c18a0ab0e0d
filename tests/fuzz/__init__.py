"""Fuzzing of every parser (R52): `bin/fuzz.sh`. One module per surface; what each found is kept in `corpus/`."""
