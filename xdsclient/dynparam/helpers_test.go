package dynparam

import "math/rand/v2"

// fromJSON returns what UnmarshalJSON makes of no constraints.
func fromJSON(data []byte) (c Constraints, err error) {
	err = c.UnmarshalJSON(data)
	return c, err
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }
