package controlplane

// toldEntries are what the client was last told of each topic, as far as that decides what
// it has to be told. SotW: only errors, absence where the client was told of that by an
// error, and what was computed for it. Delta: everything; of what is not here the client
// knows nothing. Topics of globs are here, too: with the collection's error, or with absence
// if it is in none.
type toldEntries map[topic]*entry

// set notes what the client was told of a topic. The caller holds stream.mu.
func (told *toldEntries) set(tp topic, e *entry) {
	if *told == nil {
		*told = toldEntries{}
	}
	(*told)[tp] = e
}

// absence records that a client was told that nothing exists under a name. The store holds
// no such entry.
var absence = &entry{}

// claim records a resource that a client has, or may have, from an earlier stream.
func claim(name, version string) *entry {
	return &entry{resource: &Resource{name: name, version: version}}
}

// claimed reports whether the entry is a claim.
func (e *entry) claimed() bool { return e.resource != nil && e.resource.packed == nil }
