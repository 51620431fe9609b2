package xdsclient

// lastAnswer is what a server last said of a resource. The zero value: nothing.
type lastAnswer struct {
	// payload is the last valid version, or nil. taken is when the server last sent
	// it, and what it called its version; it may change while the bytes do not.
	payload *payload
	taken   stamp
	// err is the error that has come in place of a version since, or nil.
	err *Error
}

// state is the one that gRFC A88 names. A version from disk is no answer.
func (a *lastAnswer) state() CacheState {
	switch {
	case a.err != nil:
		return a.err.state
	case a.payload == nil || a.taken.stored:
		return StateRequested
	default:
		return StateACKed
	}
}

// note notes an error.
func (a *lastAnswer) note(err *Error) {
	if a.err = err; err.withdraws {
		a.payload, a.taken = nil, stamp{}
	}
}

// about returns the same answer for another resource.
func (a *lastAnswer) about(r *resource) lastAnswer {
	other := *a
	if a.err != nil {
		other.err = a.err.about(r)
	}
	return other
}
