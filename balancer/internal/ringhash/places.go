package ringhash

// places map hashes to endpoints: a ring or a lookup. They are immutable, and place at least one endpoint.
type places interface {
	// placeOf returns the place of a hash.
	placeOf(hash uint64) int
	// candidate returns the i-th endpoint to try for the hash at a place; i is less than tries.
	candidate(place, i int) int
	// tries is how many candidates there are for a hash: at least one for each endpoint that has a
	// place.
	tries() int
}
