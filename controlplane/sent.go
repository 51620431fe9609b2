package controlplane

// sentEntries are the last entries that the client was sent, by topic, as far as they decide
// what to send next. SotW: errors, absence that was reported as an error, and computed
// resources. Delta: everything that the client knows. The topic of a glob has the collection's
// error, or absence if there is none.
type sentEntries map[topic]*entry

// set records what the client was sent. The caller holds stream.mu.
func (sent *sentEntries) set(tp topic, e *entry) {
	if *sent == nil {
		*sent = sentEntries{}
	}
	(*sent)[tp] = e
}

// absence records that the client knows that a name does not exist. The store never holds it.
var absence = &entry{}

// claim records a resource that a client has, or may have, from an earlier stream.
func claim(name, version string) *entry {
	return &entry{resource: &Resource{name: name, version: version}}
}

// claimed reports whether the entry is a claim.
func (e *entry) claimed() bool { return e.resource != nil && e.resource.packed == nil }
