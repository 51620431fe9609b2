package scenario

import "time"

// RPC is one RPC that has ended, as its client saw it.
type RPC struct {
	// Method is the method's short name, such as "UnaryCall". RPCs of further clients
	// have the client's name, so that they are counted apart.
	Method string
	// Backend is who answered, empty if nobody did.
	Backend string
	// Peer is the address of the connection that the RPC was on, empty if it
	// was on none.
	Peer string
	// Configuration is the number of the configuration that routed the RPC, 0
	// if that is not known.
	Configuration int
	Start, End    time.Time
	// Paced says that the RPC takes as long as it does on purpose, so that its
	// duration is no latency.
	Paced bool
	// Err is nil if the RPC succeeded.
	Err error
}

// Cell is a cell of the table of who answered what.
type Cell struct{ Method, Backend string }

// Counts are the RPCs that were answered, by cell.
type Counts map[Cell]int

// Of returns the RPCs of the given methods that backend answered. No methods
// means all of them, an empty backend likewise.
func (c Counts) Of(backend string, methods ...string) int {
	n := 0
	for cell, count := range c {
		if (backend == "" || cell.Backend == backend) && contains(methods, cell.Method) {
			n += count
		}
	}
	return n
}

// Share returns what part, from 0 to 1, of the answered RPCs of the given
// methods backend answered, and false if there were none.
func (c Counts) Share(backend string, methods ...string) (float64, bool) {
	n := c.Of("", methods...)
	if n == 0 {
		return 0, false
	}
	return float64(c.Of(backend, methods...)) / float64(n), true
}

// contains says whether method is one of methods, of which none means all.
func contains(methods []string, method string) bool {
	if len(methods) == 0 {
		return true
	}
	for _, m := range methods {
		if m == method {
			return true
		}
	}
	return false
}
