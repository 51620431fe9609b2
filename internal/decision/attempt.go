package decision

import "context"

// Attempt is the context of an attempt of which the picker has to know more than where it goes:
// each retry, and each attempt of a route with per-try timeouts. It is the Context of the
// attempt's Decision, so that a Decision is no larger for it. The fields are set before gRPC
// gets the attempt.
type Attempt struct {
	context.Context
	Retry bool // the RPC has been attempted before
	// Picked, if not nil, is called when the picker has found an endpoint for the attempt,
	// again if gRPC picks for it again.
	Picked func()
}

// Attempt returns the Attempt that d is for, or nil. d may be nil.
func (d *Decision) Attempt() *Attempt {
	if d == nil || d.Extra == nil {
		return nil
	}
	a, _ := d.Context.(*Attempt)
	return a
}
